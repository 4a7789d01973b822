"""The outcome of an audit as data: violations with their stories, counts, and the verdict over all.

Pure data. The rows of a finished audit do not depend on how it was cut into batches, on restarts, or on whether it ran
as a stream: sorted, two audits of the same deliveries are equal byte for byte (`Violation.line`, `Tally.line`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

OUT_OF_ORDER: Final = "out_of_order"
"""Delivered after a later record of its key."""
BEFORE_GATE: Final = "before_gate"
"""Out of order across a resize: the later record, of a newer key epoch, was delivered before its gate could be open."""
REPEATED: Final = "repeated"
"""Stored twice and delivered twice; or delivered again after later ones that were not, or by a member that had not gone
back."""
LOST: Final = "lost"
"""Skipped, and never delivered."""
WRONG_PAYLOAD: Final = "wrong_payload"
"""The delivered record differs from the stored one at its offset."""
TWO_OWNERS: Final = "two_owners"
"""A member delivered records of a partition after the next owner had begun to."""
UNAUDITED: Final = "unaudited"
"""The audit itself has a gap: events of a member that never reached the audit topic."""
KINDS: Final = (OUT_OF_ORDER, BEFORE_GATE, REPEATED, LOST, WRONG_PAYLOAD, TWO_OWNERS, UNAUDITED)

DELIVERED: Final = "delivered"
"""Records delivered for the first time."""
REDELIVERED: Final = "redelivered"
"""Read again after a failure, with all later records of their partition: Kafka allows it."""
LATE: Final = "late"
"""Events stored after others that happened later; they are judged by their own time."""
REPEATED_EVENTS: Final = "repeated_events"
"""Repetitions of the audit itself, detected by their numbers, and left out."""
UNNUMBERED: Final = "unnumbered"
"""Records whose producer does not number: judged by partition, offset and generation."""
EVENTS: Final = "events"
"""All deliveries in the audit topic."""
COUNTED: Final = (EVENTS, DELIVERED, REDELIVERED, LATE, REPEATED_EVENTS, UNNUMBERED)

MEANINGS: Final = {
    OUT_OF_ORDER: "delivered after a later record of its key",
    BEFORE_GATE: "a later record of its key came from a newer key epoch whose gate was still closed",
    REPEATED: "delivered again, without a failure or seek",
    LOST: "skipped, and never delivered",
    WRONG_PAYLOAD: "differs from the stored record at this offset",
    TWO_OWNERS: "delivered by a member whose partition already had a new owner",
    UNAUDITED: "events of this member never reached the audit topic",
}

Span = tuple[int, int]
"""The first and the last of consecutive numbers."""


class Event(NamedTuple):
    """One delivery."""

    group: str
    topic: str
    producer: int
    key: bytes | None
    sequence: int
    """The record's sequence within its key; -1 if the producer does not number."""
    partition: int
    offset: int
    generation: int
    """The generation of its key epoch; -1 in a topic that is not ordered."""
    time_ms: int
    fingerprint: int
    member: str
    incarnation: int
    group_generation: int

    def place(self) -> dict[str, Any]:
        """Return the delivery as JSON: record, place, time and member."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "generation": self.generation,
            "sequence": self.sequence,
            "producer": self.producer,
            "member": self.member,
            "incarnation": self.incarnation,
            "group_generation": self.group_generation,
            "time_ms": self.time_ms,
        }


class Violation(NamedTuple):
    """A broken rule, with the records around it. For every kind but two `event` is the violating delivery.

    `LOST` has no `event`: `sequences` never arrived (a record without a number: `offset` in `partition`); `before` is
    the last delivery of the key before them, `after` skipped them; either may be missing. `UNAUDITED` has the numbers
    of events in `sequences`.
    """

    kind: str
    group: str
    topic: str
    producer: int
    key: bytes | None
    event: Event | None = None
    before: Event | None = None
    """The earlier delivery that makes it a violation: of the same key, or by the other owner."""
    after: Event | None = None
    """The later delivery that makes it a violation, if any."""
    sequences: tuple[Span, ...] = ()
    partition: int = -1
    offset: int = -1
    stored: int | None = None
    """The fingerprint of the stored record, if it differs from the delivered one's."""
    member: str = ""
    """The member whose events are missing, for `UNAUDITED`."""

    @classmethod
    def of(cls, kind: str, event: Event, *, before: Event | None, **more: Any) -> Violation:
        """Build a violation by one delivery."""
        return cls(kind, event.group, event.topic, event.producer, event.key, event, before, **more)

    @property
    def time_ms(self) -> int | None:
        """The time of the violation, in ms since 1970; None if unknown."""
        known = self.event or self.after or self.before
        return None if known is None else known.time_ms

    def story(self) -> dict[str, Any]:
        """Return the whole story, for display and for tools."""
        row: dict[str, Any] = {
            "kind": self.kind,
            "meaning": MEANINGS[self.kind],
            "group": self.group,
            "topic": self.topic,
            "producer": self.producer,
            "key": None if self.key is None else self.key.decode(errors="backslashreplace"),
        }
        for name, one in (("delivered", self.event), ("before", self.before), ("next", self.after)):
            if one is not None:
                row[name] = one.place()
        if self.sequences:
            row["sequences"] = [list(span) for span in self.sequences]
        if self.offset >= 0:
            row |= {"partition": self.partition, "offset": self.offset}
        if self.stored is not None and self.event is not None:
            row |= {"stored": f"{self.stored:016x}", "got": f"{self.event.fingerprint:016x}"}
        if self.member:
            row["member"] = self.member
        return row

    def line(self) -> str:
        """Return the story as one line of JSON, the same in every output."""
        return json.dumps(self.story(), sort_keys=True)


class Unread(NamedTuple):
    """Lost records of a group: stored in one partition and never delivered to it."""

    group: str
    topic: str
    partition: int
    offset: int
    """The offset of the first lost record."""
    records: int


def spans_of(sequences: Iterable[int]) -> list[Span]:
    """Return the runs of consecutive numbers among rising ones."""
    found: list[Span] = []
    for one in sequences:
        if found and found[-1][1] == one - 1:
            found[-1] = (found[-1][0], one)
        else:
            found.append((one, one))
    return found


def unread_of(found: Iterable[Unread]) -> list[Unread]:
    """Merge the rows of many buckets into one per group, topic and partition."""
    together: dict[tuple[str, str, int], Unread] = {}
    for one in found:
        known = together.setdefault(one[:3], one._replace(records=0))
        together[one[:3]] = known._replace(offset=min(known.offset, one.offset), records=known.records + one.records)
    return sorted(together.values())


class Tally(NamedTuple):
    """The counts of one generation of a topic in one group. `counts` has every name of `COUNTED` and `KINDS`."""

    group: str
    topic: str
    generation: int
    counts: Mapping[str, int]

    def line(self) -> str:
        """Return the tally as one line of JSON."""
        return json.dumps({**self._asdict(), "counts": dict(self.counts)}, sort_keys=True)


def judge(tallies: Iterable[Tally], *, keys: int, forgotten: int = 0) -> dict[str, int]:
    """Compute the verdict. `out_of_order` includes those `before_gate`, which are also counted separately; a key that
    was forgotten and returned is counted again in `keys`.
    """
    counts = dict.fromkeys((*COUNTED, *KINDS), 0)
    for tally in tallies:
        for name, count in tally.counts.items():
            counts[name] += count
    return {
        "delivered": counts[DELIVERED],
        "keys": keys,
        "forgotten": forgotten,
        "events": counts[EVENTS],
        "redelivered": counts[REDELIVERED],
        "out_of_order": counts[OUT_OF_ORDER] + counts[BEFORE_GATE],
        "before_gate": counts[BEFORE_GATE],
        "lost": counts[LOST],
        "repeated": counts[REPEATED],
        "wrong_payload": counts[WRONG_PAYLOAD],
        "two_owners": counts[TWO_OWNERS],
        "unaudited": counts[UNAUDITED],
        "late": counts[LATE],
        "repeated_events": counts[REPEATED_EVENTS],
        "unnumbered": counts[UNNUMBERED],
    }


def clean(judgement: Mapping[str, int]) -> bool:
    """Whether nothing was violated."""
    return not any(judgement[name] for name in KINDS)
