"""Events of resizes, beside those of `chaos.history`: plans, cuts, refusals, gates and removals.

Only a simulation observes all of these; the history of a run on real processes lacks them, and is judged by the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.protocol.lineage import KeyEpoch

Place = tuple[str, int]


@dataclass(slots=True)
class TopicWritten:
    """A topic's znode as committed. `plan` is (generation, count before, count after) during a resize."""

    order: int
    topic: str
    generation: int
    base: int
    initial: int
    count: int
    plan: tuple[int, int, int] | None
    indices: tuple[int, ...]
    retired: Mapping[int, tuple[int, int]]
    """Index -> (last leader epoch, end offset) of removed partitions."""
    has_generations: bool = False
    """Whether it is marked as one with batches that carry generations."""
    topic_id: str = ""
    """A recreated topic has another."""


@dataclass(slots=True)
class Retired:
    """The tombstone of a drained partition was committed; `logs` are its replicas at that moment: (start, end, LSO)."""

    order: int
    place: Place
    leader_epoch: int
    end_offset: int
    leader: int
    sealed: bool
    logs: Mapping[int, tuple[int, int, int]]


@dataclass(slots=True)
class EpochEndReported:
    """A leader reported the end of an earlier leader epoch."""

    order: int
    node: int
    place: Place
    leader_epoch: int
    epoch: int
    end_offset: int


@dataclass(slots=True)
class Shown:
    """A response showed a client a topic's generation, and the leader epochs of its partitions."""

    order: int
    process: str
    topic: str
    generation: int
    epochs: Mapping[int, int]
    topic_id: str = ""


@dataclass(slots=True)
class Refused:
    """A leader refused a batch because of its generation."""

    order: int
    node: int
    place: Place
    batch_generation: int
    generation: int
    sealed: bool


@dataclass(slots=True)
class Gated:
    """A member of the group found a key epoch closed."""

    order: int
    consumer: str
    topic: str
    key_epoch: KeyEpoch


@dataclass(slots=True)
class LetIn:
    """A leader accepted a batch, with a generation (the first of its partition in an epoch) or without one."""

    order: int
    node: int
    place: Place
    has_generations: bool
    generation: int
    """The generation that the leader serves."""
    policy: str = ""
    """The topic's policy for batches without a generation."""


@dataclass
class ResizeEvents:
    """All resize events, in order."""

    topics: list[TopicWritten] = field(default_factory=list)
    retired: list[Retired] = field(default_factory=list)
    boundaries: list[EpochEndReported] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    gated: list[Gated] = field(default_factory=list)
    let_in: list[LetIn] = field(default_factory=list)
