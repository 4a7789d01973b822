"""Events of transactions, beside those of `chaos.history`: copies, ends, deliveries of committed records, markers.

Only a simulation has copiers; the history of a run on real processes lacks these events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from anabranch.chaos.resize_events import Place
from anabranch.chaos.share_events import Outcome


@dataclass(slots=True)
class Copy:
    """A record that a copier wrote within a transaction. `source` is the value that it copies."""

    value: str
    source: str
    key: str
    final: bool = False
    """Whether it is not to be copied again."""


@dataclass(slots=True)
class Transaction:
    """One transaction of a copier. `requested_end` is how its producer ends it; outcome "ok": it ended so."""

    order: int
    name: str
    transactional_id: str
    producer: str
    copies: list[Copy] = field(default_factory=list)
    offsets: dict[Place, int] = field(default_factory=dict)
    group_generation: int = -1
    offsets_order: int = -1
    """When its offsets were sent to the group's coordinator; -1 never."""
    offsets_accepted: bool = False
    requested_end: Literal["", "commit", "abort"] = ""
    end_order: int = -1
    outcome: Outcome = "info"
    ended_order: int = -1


@dataclass(slots=True)
class ProducerInitialized:
    """A producer took a transactional id over."""

    order: int
    transactional_id: str
    producer: str
    producer_epoch: int = -1


@dataclass(slots=True)
class CommittedRead:
    """One record delivered to a read_committed consumer; `transaction` names the one in which it was read, if any."""

    order: int
    reader: str
    run: int
    place: Place
    offset: int
    value: str
    transaction: str = ""


@dataclass(slots=True)
class Marker:
    """The end of a transaction in a leader's log at the end of the run."""

    place: Place
    offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
