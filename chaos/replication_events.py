"""Events of replicas, beside those of `chaos.history`: leading, following, acknowledging, and what they answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.chaos.resize_events import Place


@dataclass(slots=True)
class Led:
    """A broker began to lead a partition."""

    order: int
    node: int
    life: int
    place: Place
    leader_epoch: int
    topic_id: str = ""


@dataclass(slots=True)
class HighWatermark:
    """A replica moved its high watermark. A leader's move comes with what justified it: the log ends of its ISR."""

    order: int
    node: int
    life: int
    place: Place
    leader_epoch: int
    leads: bool
    before: int
    after: int
    ends: Mapping[int, int] = field(default_factory=dict)
    """Broker -> the log end that its replica really has, for each member of the maximal ISR; -1 unknown (dead)."""


@dataclass(slots=True)
class Truncated:
    """A replica cut its log."""

    order: int
    node: int
    place: Place
    leader_epoch: int
    offset: int
    high_watermark: int


@dataclass(slots=True)
class Stray:
    """When all was over, a broker had a replica of a topic that exists no longer."""

    node: int
    place: Place
    topic_id: str


@dataclass(slots=True)
class Acked:
    """A leader answered a produce with acks=all: the size of its ISR, and the replicas that really had the records."""

    order: int
    node: int
    place: Place
    end_offset: int
    isr: tuple[int, ...]
    ends: Mapping[int, int]
    min_isr: int


@dataclass(slots=True)
class Proposed:
    """The controller granted an ISR that a leader had asked for; with the epochs it named and those registered."""

    order: int
    place: Place
    isr: tuple[int, ...]
    named: Mapping[int, int]
    registered: Mapping[int, int]
    high_watermark: int = -1
    """The leader's, if it is known."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """The real log end of each member; -1 unknown."""


@dataclass(slots=True)
class EndTold:
    """A broker that took itself for the leader told a client where a partition ends (uncommitted records and all)."""

    order: int
    node: int
    place: Place
    leader_epoch: int
    offset: int


@dataclass(slots=True)
class IsrAsked:
    """A leader asked the controller for another ISR. `heard_order` -1: its life ended before it heard of that again."""

    order: int
    node: int
    life: int
    place: Place
    heard_order: int = -1


@dataclass(frozen=True, slots=True)
class IsrVersion:
    """A committed ISR, and where it stands among a partition's: as a leader knows it, or as an answer says."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass(slots=True)
class IsrAnswered:
    """What the controller granted, and what the leader took for committed before it heard that, and after."""

    order: int
    node: int
    place: Place
    granted: IsrVersion
    before: IsrVersion
    after: IsrVersion


@dataclass(slots=True)
class Admitted:
    """A broker accepted a controller's request. `own_epoch` is its registration's, -1 while it does not know it."""

    order: int
    node: int
    life: int
    controller_epoch: int
    broker_epoch: int
    own_epoch: int
