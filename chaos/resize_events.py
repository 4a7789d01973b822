"""Events of resizes, beside those of `chaos.history`: plans, cuts, refusals, gates and removals.

Only a simulation can see all of this; the history of a run on real processes has none of it, and is judged by the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.protocol.lineage import Segment

Place = tuple[str, int]


@dataclass(slots=True)
class TopicWritten:
    """A topic's znode as committed. `plan` is (generation, count before, count after) while a resize is under way."""

    order: int
    topic: str
    generation: int
    base: int
    initial: int
    count: int
    plan: tuple[int, int, int] | None
    indices: tuple[int, ...]
    retired: Mapping[int, tuple[int, int]]
    """Index -> (last leader epoch, end offset) of partitions that were removed."""
    stamped: bool = False
    """Whether it is marked as one with stamped batches."""


@dataclass(slots=True)
class Retired:
    """The stub of a drained partition was committed; `logs` are the replicas of those moments: (start, end, LSO)."""

    order: int
    place: Place
    leader_epoch: int
    end_offset: int
    leader: int
    sealed: bool
    logs: Mapping[int, tuple[int, int, int]]


@dataclass(slots=True)
class BoundaryTold:
    """A leader said where a leader epoch before its own ended."""

    order: int
    node: int
    place: Place
    leader_epoch: int
    epoch: int
    end_offset: int


@dataclass(slots=True)
class Shown:
    """A client was shown a topic's generation, and the leader epochs of its partitions, in one answer."""

    order: int
    process: str
    topic: str
    generation: int
    epochs: Mapping[int, int]


@dataclass(slots=True)
class Refused:
    """A leader refused a batch for the generation in which it was partitioned."""

    order: int
    node: int
    place: Place
    stamp: int
    generation: int
    sealed: bool


@dataclass(slots=True)
class Gated:
    """A member of the group found a segment closed."""

    order: int
    consumer: str
    topic: str
    segment: Segment


@dataclass(slots=True)
class LetIn:
    """A leader accepted a batch, stamped with a generation (the first of its partition in an epoch) or without one."""

    order: int
    node: int
    place: Place
    stamped: bool
    generation: int
    """The generation that the leader serves."""
    policy: str = ""
    """The topic's policy for batches without a generation."""


@dataclass
class ResizeEvents:
    """Everything, in order."""

    topics: list[TopicWritten] = field(default_factory=list)
    retired: list[Retired] = field(default_factory=list)
    boundaries: list[BoundaryTold] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    gated: list[Gated] = field(default_factory=list)
    let_in: list[LetIn] = field(default_factory=list)
