"""Events of groups that share partitions, beside those of `chaos.history`: what members were handed and said of it.

What brokers locked and stored is seen from inside, by a simulation alone; runs on real processes are judged by the
rest. One group shares at a time, so a place names what it has of a partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Place = tuple[str, int]
Outcome = Literal["ok", "fail", "info"]
Verdict = Literal["accept", "release", "reject"]


@dataclass(slots=True)
class Handed:
    """A member was handed a record, by the answer to a request that it had sent at `asked_order`."""

    order: int
    asked_order: int
    asked_s: float
    member: str
    node: int
    place: Place
    offset: int
    count: int


@dataclass(slots=True)
class Judged:
    """A member said what is to become of a record. "ok" says that the broker has taken it in."""

    order: int
    member: str
    node: int
    place: Place
    offset: int
    verdict: Verdict
    outcome: Outcome = "info"
    acked_order: int = -1
    acked_s: float = -1.0


@dataclass(slots=True)
class Locked:
    """A leader gave a record to a member. `leader` is its process: one that starts again may keep the leader epoch."""

    order: int
    leader: str
    place: Place
    leader_epoch: int
    offset: int
    member: str
    count: int


@dataclass(slots=True)
class Settled:
    """A leader took in that the fate of offsets, both inclusive, is stored: they are nobody's from now on."""

    order: int
    leader: str
    place: Place
    leader_epoch: int
    first: int
    last: int
    done: bool
    """Whether they must not come again."""
    count: int


@dataclass(slots=True)
class LetGo:
    """A member's session with a leader is over."""

    order: int
    leader: str
    member: str


@dataclass(slots=True)
class StartKept:
    """A share coordinator has stored where the group's start is, or a leader was told so.

    A coordinator that was frozen may learn late that something was stored: its own epoch says when that was."""

    order: int
    place: Place
    leader_epoch: int
    """Of the leader that stored it or was told."""
    start: int
    keeper_epoch: int | None
    """Of the coordinator that stored it; None where a leader was told."""


@dataclass
class ShareEvents:
    """All of them, each kind in its order."""

    delivery_limit: int = 0
    """How often a record is delivered at most; 0 where no group shares."""
    topics: set[str] = field(default_factory=set)
    """What the group shares from its first record on."""
    handed: list[Handed] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    inside: list[Locked | Settled | LetGo] = field(default_factory=list)
    starts: list[StartKept] = field(default_factory=list)
