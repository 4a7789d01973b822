"""What a delivery means, given everything delivered of its key before: the rules of the order audit, as plain Python.

Per (group, producer, key) the checker knows the highest sequence delivered, the partition it came from, the sequences
that were skipped, and how far the key has been read in each partition it ever lived in. A delivery is then one of these:

    in order       the next sequence; if it is beyond the next, those in between are missing until they come
    redelivered    an offset that this partition was read past before, as Kafka allows after a failure; the key's newest
                   record came from the same partition, so the application sees a stretch of it twice, in order
    out of order   a missing record that comes after a later one of its key; or a redelivery after a later record was
                   handed out from *another* partition, which would take the application back in time
    repeated       a sequence seen before under a new offset: stored twice

What is missing when the audit ends, or was never delivered at all, is lost. The state of many keys is packed into one
value per bucket, because a round trip per key costs more than the check (see the measurements in DESIGN.md).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

IN_ORDER: Final = "in_order"
REDELIVERED: Final = "redelivered"
OUT_OF_ORDER: Final = "out_of_order"
REPEATED: Final = "repeated"
COUNTERS: Final = ("events", "delivered", "redelivered", "out_of_order", "repeated", "missing", "unnumbered", "keys")


class Event(NamedTuple):
    """One delivery, as the audit topic tells it."""

    group: str
    producer: int
    key: bytes
    sequence: int
    topic: str
    partition: int
    offset: int
    generation: int
    member: str
    incarnation: int
    time_ms: int


class Violation(NamedTuple):
    """A delivery that breaks a rule, with the record of its key that had been handed out before it."""

    kind: str
    event: Event
    before: Event


@dataclass(slots=True)
class KeyState:
    """Everything the rules need to know about one key of one producer in one group."""

    newest: Event
    read_to: dict[int, int] = field(default_factory=dict)
    """Per partition: the highest offset of this key that was delivered from it."""
    missing: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Bucket:
    """The states of many keys, and what was counted in them so far."""

    keys: dict[tuple[str, int, bytes], KeyState] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    by_generation: dict[int, int] = field(default_factory=dict)

    def check(self, events: Iterable[Event]) -> list[Violation]:
        """Take deliveries in the order in which they happened; the violations among them."""
        violations: list[Violation] = []
        counts, keys = self.counts, self.keys
        for event in events:
            counts["events"] += 1
            if event.producer == 0:
                counts["unnumbered"] += 1
                continue
            name = (event.group, event.producer, event.key)
            state = keys.get(name)
            if state is None:
                state = keys[name] = KeyState(newest=_before_the_first(event))
                counts["keys"] += 1
            before = state.newest
            kind = self._judge(state, event)
            if kind is IN_ORDER:
                continue
            counts[kind] += 1
            if kind is not REDELIVERED:
                violations.append(Violation(kind, event, before))
        return violations

    def _judge(self, state: KeyState, event: Event) -> str:
        counts, newest, sequence = self.counts, state.newest, event.sequence
        partition, offset = event.partition, event.offset
        if offset <= state.read_to.get(partition, -1):
            return REDELIVERED if newest.partition == partition else OUT_OF_ORDER
        state.read_to[partition] = offset
        if sequence > newest.sequence:
            if sequence > newest.sequence + 1:
                state.missing.update(range(newest.sequence + 1, sequence))
                counts["missing"] += sequence - newest.sequence - 1
            state.newest = event
            self._count(event)
            return IN_ORDER
        if sequence in state.missing:
            state.missing.remove(sequence)
            counts["missing"] -= 1
            self._count(event)
            return OUT_OF_ORDER
        return REPEATED

    def _count(self, event: Event) -> None:
        self.counts["delivered"] += 1
        self.by_generation[event.generation] = self.by_generation.get(event.generation, 0) + 1

    def pack(self) -> bytes:
        """As bytes, for the state store. Read back by `unpack` only: the checkpoint is ours alone."""
        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def unpack(data: bytes | None) -> Bucket:
        """From bytes; an empty bucket from none."""
        if data is None:
            return Bucket()
        bucket = pickle.loads(data)
        assert isinstance(bucket, Bucket), "packed by pack()"
        return bucket


def total(rows: Iterable[dict[str, int]]) -> dict[str, int]:
    """The sums over all buckets."""
    sums = dict.fromkeys(COUNTERS, 0)
    for row in rows:
        for name in COUNTERS:
            sums[name] += row[name]
    return sums


def verdict(counts: dict[str, int], *, stored: int | None, stored_distinct: int | None) -> dict[str, int]:
    """The judgement over a finished audit; with what the audited topic stores, also what was never delivered at all."""
    lost = counts["missing"]
    repeated = counts["repeated"]
    if stored is not None and stored_distinct is not None:
        lost = max(lost, stored_distinct - counts["delivered"])
        repeated = max(repeated, stored - stored_distinct)
    return {
        "delivered": counts["delivered"],
        "keys": counts["keys"],
        "events": counts["events"],
        "redelivered": counts["redelivered"],
        "out_of_order": counts["out_of_order"],
        "lost": lost,
        "repeated": repeated,
        "unnumbered": counts["unnumbered"],
    }


def clean(judgement: dict[str, int]) -> bool:
    """Whether nothing was violated."""
    return not any(judgement[name] for name in ("out_of_order", "lost", "repeated"))


def _before_the_first(event: Event) -> Event:
    return event._replace(sequence=-1, partition=-1, offset=-1)
