"""What a delivery means, given everything delivered of its key before: the rules of the order audit, as plain Python.

Per (group, topic, producer, key) the checker knows the highest sequence delivered and where it came from, the sequences
that were skipped, and how far the key has been read in each partition it ever lived in. A delivery is one of these:

    in order       beyond everything delivered so far; those in between are missing until they come
    out of order   a missing one that comes after a later one; or one seen before, read again from a partition that the
                   key's newest delivery did *not* come from, which takes the application back in time
    redelivered    one seen before, read again from the partition of the newest delivery, as Kafka allows after a
                   failure: the application sees a stretch of its newest partition twice
    repeated       one seen before, under an offset that was not read before: it was stored twice

Lost is what is missing when the audit ends, and what the audited topic stores beyond the newest delivery. The state of
many keys is packed into one value per bucket: a round trip per key to the state store costs more than the check.
"""

from __future__ import annotations

import bisect
import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

IN_ORDER: Final = "in_order"
REDELIVERED: Final = "redelivered"
OUT_OF_ORDER: Final = "out_of_order"
REPEATED: Final = "repeated"
LOST: Final = "lost"
COUNTERS: Final = (
    "events",
    "delivered",
    "redelivered",
    "out_of_order",
    "repeated",
    "missing",
    "unnumbered",
    "keys",
    "stored",
    "stored_again",
)

Span = tuple[int, int]
"""First and last of some sequences in a row."""


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


class Loss(NamedTuple):
    """Records of one key that were never handed to a group."""

    group: str
    topic: str
    producer: int
    key: bytes
    sequences: list[Span]
    newest: Event | None
    """The newest delivery of the key; none when nothing of it was delivered."""


class Gaps:
    """Sequences that were passed over, as spans: a late start may pass over millions."""

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.spans)

    def append(self, first: int, last: int) -> None:
        """Add a span beyond all others; an empty one adds nothing."""
        if first <= last:
            self.spans.append((first, last))

    def remove(self, sequence: int) -> bool:
        """Whether the sequence was in a gap; it no longer is."""
        at = bisect.bisect_right(self.spans, sequence, key=lambda span: span[0]) - 1
        if at < 0 or self.spans[at][1] < sequence:
            return False
        first, last = self.spans[at]
        rest = [(first, sequence - 1), (sequence + 1, last)]
        self.spans[at : at + 1] = [span for span in rest if span[0] <= span[1]]
        return True


@dataclass(slots=True)
class KeyState:
    """Everything the rules need to know about one key of one producer in one group."""

    newest: Event
    read_to: dict[int, int] = field(default_factory=dict)
    """Per partition: the highest offset of this key that was delivered from it."""
    missing: Gaps = field(default_factory=Gaps)


@dataclass(slots=True)
class StoredState:
    """Which sequences of one key of one producer the audited topic was seen to store."""

    newest: int = -1
    absent: Gaps = field(default_factory=Gaps)

    def beyond(self, sequence: int) -> list[Span]:
        """What is stored after `sequence`."""
        spans, position = [], sequence + 1
        for first, last in self.absent.spans:
            if last < position:
                continue
            if position < first:
                spans.append((position, first - 1))
            position = last + 1
        if position <= self.newest:
            spans.append((position, self.newest))
        return spans


@dataclass(slots=True)
class Bucket:
    """The states of many keys, and what was counted in them so far."""

    keys: dict[tuple[str, str, int, bytes], KeyState] = field(default_factory=dict)
    stored: dict[tuple[int, bytes], StoredState] = field(default_factory=dict)
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
            name = (event.group, event.topic, event.producer, event.key)
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
        newest, sequence, partition = state.newest, event.sequence, event.partition
        read_to = state.read_to.get(partition, -1)
        if event.offset > read_to:
            state.read_to[partition] = event.offset
        if sequence > newest.sequence:
            state.missing.append(newest.sequence + 1, sequence - 1)
            self.counts["missing"] += sequence - newest.sequence - 1
            state.newest = event
            self._count(event)
            return IN_ORDER
        if state.missing.remove(sequence):
            self.counts["missing"] -= 1
            self._count(event)
            return OUT_OF_ORDER
        if event.offset > read_to:
            return REPEATED
        return REDELIVERED if newest.partition == partition else OUT_OF_ORDER

    def _count(self, event: Event) -> None:
        self.counts["delivered"] += 1
        self.by_generation[event.generation] = self.by_generation.get(event.generation, 0) + 1

    def store(self, records: Iterable[tuple[int, bytes, int]]) -> None:
        """Take note of what the audited topic stores: (producer, key, sequence), in any order."""
        stored, counts = self.stored, self.counts
        for producer, key, sequence in records:
            counts["stored"] += 1
            state = stored.get((producer, key))
            if state is None:
                state = stored[producer, key] = StoredState()
            if sequence > state.newest:
                state.absent.append(state.newest + 1, sequence - 1)
                state.newest = sequence
            elif not state.absent.remove(sequence):
                counts["stored_again"] += 1

    def groups(self) -> set[str]:
        """Every group that anything in this bucket was delivered to."""
        return {group for group, *_ in self.keys}

    def undelivered(self, topic: str) -> dict[str, int]:
        """Per group: how many records of `topic` are stored beyond the newest deliveries of their keys."""
        found = dict.fromkeys(self.groups(), 0)
        for group in found:
            for (producer, key), stored in self.stored.items():
                state = self.keys.get((group, topic, producer, key))
                newest = -1 if state is None else state.newest.sequence
                if stored.newest > newest:
                    found[group] += sum(last - first + 1 for first, last in stored.beyond(newest))
        return found

    def losses(self, topic: str | None, groups: Iterable[str]) -> Iterator[Loss]:
        """What was skipped and never came, in any topic, and what `topic` stores beyond the newest deliveries."""
        for (group, its_topic, producer, key), state in self.keys.items():
            if state.missing.spans:
                yield Loss(group, its_topic, producer, key, list(state.missing.spans), state.newest)
        if topic is None:
            return
        for group in groups:
            for (producer, key), stored in self.stored.items():
                known = self.keys.get((group, topic, producer, key))
                spans = stored.beyond(-1 if known is None else known.newest.sequence)
                if spans:
                    yield Loss(group, topic, producer, key, spans, None if known is None else known.newest)

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


def total(rows: Collection[Mapping[str, Any]]) -> dict[str, int]:
    """The sums over all buckets; `undelivered` counts for every group that anything was delivered to."""
    sums = {name: sum(row[name] for row in rows) for name in COUNTERS}
    # A bucket that a group got nothing from does not know of the group: all that it stores is undelivered there.
    sums["undelivered"] = sum(
        row["undelivered"].get(group, row["stored"] - row["stored_again"]) for group in groups(rows) for row in rows
    )
    return sums


def groups(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Every group that anything was delivered to; a nameless one that missed everything, if there is none."""
    return sorted({group for row in rows for group in row["undelivered"]}) or [""]


def verdict(counts: Mapping[str, int]) -> dict[str, int]:
    """The judgement over a finished audit."""
    return {
        "delivered": counts["delivered"],
        "keys": counts["keys"],
        "events": counts["events"],
        "redelivered": counts["redelivered"],
        "out_of_order": counts["out_of_order"],
        "lost": counts["missing"] + counts["undelivered"],
        "repeated": max(counts["repeated"], counts["stored_again"]),
        "unnumbered": counts["unnumbered"],
    }


def clean(judgement: Mapping[str, int]) -> bool:
    """Whether nothing was violated."""
    return not any(judgement[name] for name in ("out_of_order", "lost", "repeated"))


def _before_the_first(event: Event) -> Event:
    return event._replace(sequence=-1, partition=-1, offset=-1)
