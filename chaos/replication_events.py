"""Events of replicas, beside those of `chaos.history`: leadership, replication, acknowledgements and responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.chaos.resize_events import Place


@dataclass(slots=True)
class Led:
    """A broker became a partition's leader."""

    order: int
    node: int
    life: int
    place: Place
    leader_epoch: int
    topic_id: str = ""


@dataclass(slots=True)
class HighWatermark:
    """A replica moved its high watermark. A leader's move includes its justification: the log ends of its ISR."""

    order: int
    node: int
    life: int
    place: Place
    leader_epoch: int
    leads: bool
    before: int
    after: int
    ends: Mapping[int, int] = field(default_factory=dict)
    """Broker -> the actual log end of its replica, for each member of the maximal ISR; -1 unknown (dead)."""


@dataclass(slots=True)
class Truncated:
    """A replica truncated its log."""

    order: int
    node: int
    place: Place
    leader_epoch: int
    offset: int
    high_watermark: int


@dataclass(slots=True)
class Stray:
    """At the end of the run, a broker had a replica that it should not have any more."""

    node: int
    place: Place
    topic_id: str
    why: str = "the topic is gone"


@dataclass(slots=True)
class DeletionRequested:
    """A broker began to carry out the deletion of one topic, by name or by id."""

    order: int
    node: int
    topic: str


@dataclass(slots=True)
class Acked:
    """A leader answered acks=all: the size of its ISR, and the replicas that actually had the records."""

    order: int
    node: int
    place: Place
    end_offset: int
    isr: tuple[int, ...]
    ends: Mapping[int, int]
    min_isr: int


@dataclass(slots=True)
class Proposed:
    """The controller granted an ISR that a leader requested; with the request's and the registered epochs."""

    order: int
    place: Place
    isr: tuple[int, ...]
    named: Mapping[int, int]
    registered: Mapping[int, int]
    high_watermark: int = -1
    """The leader's high watermark, if it is known."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """The actual log end of each member; -1 unknown."""


@dataclass(slots=True)
class ReportedEnd:
    """A broker that acted as leader reported a partition's end to a client (including uncommitted records)."""

    order: int
    node: int
    place: Place
    leader_epoch: int
    offset: int


@dataclass(slots=True)
class IsrRequest:
    """A leader requested an ISR from the controller. `response_order` -1: it ended before the response."""

    order: int
    node: int
    life: int
    place: Place
    response_order: int = -1


@dataclass(frozen=True, slots=True)
class IsrVersion:
    """A committed ISR and its version: as a leader knows it, or in a response."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass(slots=True)
class IsrAnswered:
    """The controller's response, and the leader's committed ISR before and after it."""

    order: int
    node: int
    place: Place
    granted: IsrVersion
    before: IsrVersion
    after: IsrVersion


@dataclass(slots=True)
class Admitted:
    """A broker accepted a controller's request. `own_epoch` is its broker epoch, -1 while unknown."""

    order: int
    node: int
    life: int
    controller_epoch: int
    broker_epoch: int
    own_epoch: int
