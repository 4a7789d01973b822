"""The outcome of an audit as data: violations with their stories, counts, and the verdict over all.

Pure data. The rows of a finished audit do not depend on how it was cut into batches, on restarts, or on whether it ran
as a stream: sorted, two audits of the same deliveries are equal byte for byte (`Violation.line`, `Tally.line`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

OUT_OF_ORDER: Final = "out_of_order"
"""Handed out after a later record of its key."""
BEFORE_GATE: Final = "before_gate"
"""The same, across a resize: the later one, of a newer segment, came before its gate could be open."""
REPEATED: Final = "repeated"
"""Stored twice and handed out twice; or handed out again after later ones that were not handed out again, or by a
member that had not gone back."""
LOST: Final = "lost"
"""Passed over, and never handed out."""
WRONG_PAYLOAD: Final = "wrong_payload"
"""What was handed out is not what is stored at its offset."""
TWO_OWNERS: Final = "two_owners"
"""A member handed out records of a partition after the next owner had begun to."""
UNAUDITED: Final = "unaudited"
"""The audit itself has a hole: events of a member that never reached the audit topic."""
KINDS: Final = (OUT_OF_ORDER, BEFORE_GATE, REPEATED, LOST, WRONG_PAYLOAD, TWO_OWNERS, UNAUDITED)

DELIVERED: Final = "delivered"
"""Records handed out for the first time."""
REDELIVERED: Final = "redelivered"
"""Read again after a failure, with all that follows them in their partition: Kafka allows it."""
LATE: Final = "late"
"""Events that were stored after others which happened later; they are judged as of their own time."""
REPEATED_EVENTS: Final = "repeated_events"
"""Repetitions of the audit itself, known by their numbers, and left out."""
UNNUMBERED: Final = "unnumbered"
"""Records whose producer does not number: judged by partition, offset and generation."""
EVENTS: Final = "events"
"""All deliveries that the audit topic names."""
COUNTED: Final = (EVENTS, DELIVERED, REDELIVERED, LATE, REPEATED_EVENTS, UNNUMBERED)

MEANINGS: Final = {
    OUT_OF_ORDER: "handed out after a later record of its key",
    BEFORE_GATE: "a later record of its key came from a newer segment whose gate could not be open yet",
    REPEATED: "handed out again, and no failure or seek explains it",
    LOST: "passed over, and never handed out",
    WRONG_PAYLOAD: "not what is stored at this offset",
    TWO_OWNERS: "handed out by a member whose partition already had its next owner",
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
    """The record's number among those of its key; -1 when the producer does not number."""
    partition: int
    offset: int
    generation: int
    """The generation of its segment; -1 in a topic that is not ordered."""
    time_ms: int
    fingerprint: int
    member: str
    incarnation: int
    group_generation: int

    def place(self) -> dict[str, Any]:
        """The delivery as JSON: record, place, time and member."""
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
    """A rule that was broken, with the records around it. For every kind but two `event` is the guilty delivery.

    `LOST` has no `event`: `sequences` never came (a record without a number: `offset` in `partition`); `before` is the
    last delivery of the key that came before them, `after` passed over them; either may be missing. `UNAUDITED` has the
    numbers of events in `sequences`.
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
    """The later delivery that makes it a violation, if one does."""
    sequences: tuple[Span, ...] = ()
    partition: int = -1
    offset: int = -1
    stored: int | None = None
    """The fingerprint of the stored record, if it differs from the delivered one's."""
    member: str = ""
    """The member whose events are missing, of `UNAUDITED`."""

    @classmethod
    def of(cls, kind: str, event: Event, *, before: Event | None, **more: Any) -> Violation:
        """A violation by one delivery."""
        return cls(kind, event.group, event.topic, event.producer, event.key, event, before, **more)

    @property
    def time_ms(self) -> int | None:
        """When it happened, in ms since 1970; None if unknown."""
        known = self.event or self.after or self.before
        return None if known is None else known.time_ms

    def story(self) -> dict[str, Any]:
        """The whole story, for people and for tools."""
        told: dict[str, Any] = {
            "kind": self.kind,
            "meaning": MEANINGS[self.kind],
            "group": self.group,
            "topic": self.topic,
            "producer": self.producer,
            "key": None if self.key is None else self.key.decode(errors="backslashreplace"),
        }
        for name, one in (("delivered", self.event), ("before", self.before), ("next", self.after)):
            if one is not None:
                told[name] = one.place()
        if self.sequences:
            told["sequences"] = [list(span) for span in self.sequences]
        if self.offset >= 0:
            told |= {"partition": self.partition, "offset": self.offset}
        if self.stored is not None and self.event is not None:
            told |= {"stored": f"{self.stored:016x}", "got": f"{self.event.fingerprint:016x}"}
        if self.member:
            told["member"] = self.member
        return told

    def line(self) -> str:
        """The story as one line of JSON, the same wherever it is told."""
        return json.dumps(self.story(), sort_keys=True)


class Unread(NamedTuple):
    """Where a group lost records: what one partition stores and the group was never given."""

    group: str
    topic: str
    partition: int
    offset: int
    """The offset of the first lost record."""
    records: int


def unread_of(found: Iterable[Unread]) -> list[Unread]:
    """The rows of many buckets, merged into one per group, topic and partition."""
    together: dict[tuple[str, str, int], Unread] = {}
    for one in found:
        known = together.setdefault(one[:3], one._replace(records=0))
        together[one[:3]] = known._replace(offset=min(known.offset, one.offset), records=known.records + one.records)
    return sorted(together.values())


class Tally(NamedTuple):
    """What was counted of one generation of a topic in one group. `counts` has every name of `COUNTED` and `KINDS`."""

    group: str
    topic: str
    generation: int
    counts: Mapping[str, int]

    def line(self) -> str:
        """As one line of JSON."""
        return json.dumps({**self._asdict(), "counts": dict(self.counts)}, sort_keys=True)


def judge(tallies: Iterable[Tally], *, keys: int, forgotten: int = 0) -> dict[str, int]:
    """The verdict. `out_of_order` includes those `before_gate`, which are told apart beside it; a key that was
    forgotten and came back is counted again in `keys`."""
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
