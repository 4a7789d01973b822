"""Events of share groups, beside those of `chaos.history`: deliveries and acknowledgements.

Only a simulation observes brokers' locks and stored states; runs on real processes are judged by the rest. There is one
share group at a time, so a place identifies its partition state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from anabranch.chaos.resize_events import Place

Outcome = Literal["ok", "fail", "info"]
Verdict = Literal["accept", "release", "reject"]


@dataclass(slots=True)
class Handed:
    """A member received a record, in the response to a request sent at `request_order`."""

    order: int
    request_order: int
    requested_s: float
    member: str
    node: int
    place: Place
    offset: int
    count: int


@dataclass(slots=True)
class Judged:
    """A member acknowledged a record with a type. "ok" means that the broker has accepted it."""

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
    """A leader gave a record to a member. `leader` is its process: a restarted one may keep the leader epoch."""

    order: int
    leader: str
    place: Place
    leader_epoch: int
    offset: int
    member: str
    count: int


@dataclass(slots=True)
class Settled:
    """A leader noted the stored state of offsets, both inclusive: no member holds them any more."""

    order: int
    leader: str
    place: Place
    leader_epoch: int
    first: int
    last: int
    done: bool
    """Whether they must not be delivered again."""
    count: int


@dataclass(slots=True)
class LetGo:
    """A member's session with a leader ended."""

    order: int
    leader: str
    member: str


@dataclass(slots=True)
class StartKept:
    """A share coordinator stored the group's start offset, or reported it to a leader.

    A frozen coordinator may learn late that something was stored: its own epoch shows when that was.
    """

    order: int
    place: Place
    leader_epoch: int
    """That of the leader that stored or received it."""
    start: int
    keeper_epoch: int | None
    """That of the coordinator that stored it; None where a leader received it."""


@dataclass
class ShareEvents:
    """All share events, each kind in its order."""

    delivery_limit: int = 0
    """The maximum number of deliveries of a record; 0 without a share group."""
    topics: set[str] = field(default_factory=set)
    """The topics that the group shares from their first record on."""
    handed: list[Handed] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    inside: list[Locked | Settled | LetGo] = field(default_factory=list)
    starts: list[StartKept] = field(default_factory=list)
