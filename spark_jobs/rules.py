"""The rules of the audit: classify one delivery, given all earlier deliveries of its key.

Only deliveries that are not plainly the next of their key come here (`checks.Bucket`). Of a numbered key:

    delivered      beyond everything delivered so far; what lies between is passed over until it comes
    out of order   passed over, and now it comes; *before gate* when the later one was of a newer key epoch
    redelivered    seen before, read again from the partition of the newest delivery, as Kafka allows after a failure.
                   That what follows it is read again, too, is `places`' rule: it is the partition that goes back
    out of order   seen before, read again from a partition that the key has left: that takes the application back
    repeated       seen before, under an offset that was not read before: it was stored twice
    late           stored behind what happened later, by its own time or its number; nothing went wrong

Along a key's path generations rise (R2), so a key without numbers is judged by generation first, then by offset; where
there is no lineage, each partition is judged alone.

What is passed over is lost when the time of events has gone `timeout_ms` beyond it. Time is that of the events of the
bucket, as they stand in the audit topic, so the answer does not depend on how the topic is cut into batches.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from anabranch.spark_jobs.places import happened_before
from anabranch.spark_jobs.verdict import (
    BEFORE_GATE,
    DELIVERED,
    LATE,
    LOST,
    OUT_OF_ORDER,
    REDELIVERED,
    REPEATED,
    Event,
    Violation,
)

UNSEEN: Final = -1


class Skip(NamedTuple):
    """Skipped sequences."""

    first: int
    last: int
    reported: bool
    """Whether they were reported as lost."""
    by: Event
    """The delivery that skipped them."""
    before: Event | None
    """The delivery before that; None if it was the first."""


class Finding(NamedTuple):
    """The class of a delivery, and its violations."""

    counts: tuple[str, ...]
    violations: tuple[Violation, ...] = ()


@dataclass(slots=True)
class Line:
    """One key of one producer and topic in one group."""

    newest: Event | None = None
    """The delivery with the highest sequence; without numbers, the one furthest along the key's path."""
    former: dict[int, int] = field(default_factory=dict)
    """Partition -> highest offset read there, including its newest partition."""
    skipped: list[Skip] = field(default_factory=list)
    began: int = 0
    """Its first sequence: more than 0 if earlier ones may have been forgotten."""

    def judge(self, event: Event, *, late: bool, clock_ms: int, timeout_ms: int) -> Finding:
        """Judge one delivery. `clock_ms`: the event time so far; `late`: known to have happened earlier."""
        if event.sequence < 0:
            return self._judge_place(event, late=late)
        newest = self.newest
        if newest is None or event.sequence > newest.sequence:
            begin = self.began if newest is None else newest.sequence + 1
            if begin < event.sequence:
                self.skipped.append(Skip(begin, event.sequence - 1, False, event, newest))
            self._advance(event)
            return Finding((DELIVERED,))
        skip = self._take_skipped(event.sequence)
        if skip is not None:
            losses = self._tell_if_lost(skip, clock_ms, timeout_ms)
            self._read(event)
            if late or (event.partition == newest.partition and happened_before(event, newest)):
                return Finding((DELIVERED, LATE), losses)
            kind = BEFORE_GATE if 0 <= event.generation < newest.generation else OUT_OF_ORDER
            return Finding((DELIVERED, kind), (*losses, Violation.of(kind, event, before=newest)))
        if late or happened_before(event, newest):
            return Finding((LATE,))
        return self._judge_seen(event, newest)

    def find_lost(self, clock_ms: int, timeout_ms: int) -> Iterator[Violation]:
        """Yield the sequences that have become lost by now; each is reported once."""
        for index, skip in enumerate(self.skipped):
            if not skip.reported and clock_ms - skip.by.time_ms >= timeout_ms:
                self.skipped[index] = skip._replace(reported=True)
                yield loss(skip)

    def reaches(self, sequence: int) -> bool:
        """Whether the line began with this sequence or an earlier one, and has reached it."""
        return self.newest is not None and self.began <= sequence <= self.newest.sequence

    def has_passed(self, sequence: int) -> bool:
        """Whether a record of this sequence was delivered: a stored one that was not has a twin that was."""
        return self.reaches(sequence) and not self.misses(sequence)

    def misses(self, sequence: int) -> bool:
        """Whether a sequence was skipped and is missing."""
        return any(skip.first <= sequence <= skip.last for skip in self.skipped)

    def _judge_seen(self, event: Event, newest: Event) -> Finding:
        read_to = self.former.get(event.partition, UNSEEN)
        if event.partition == newest.partition:
            if event.offset <= read_to:
                return Finding((REDELIVERED,))
        elif event.offset <= read_to or 0 <= event.generation < newest.generation:
            return Finding((OUT_OF_ORDER,), (Violation.of(OUT_OF_ORDER, event, before=newest),))
        self._read(event)
        return Finding((REPEATED,), (Violation.of(REPEATED, event, before=newest),))

    def _judge_place(self, event: Event, *, late: bool) -> Finding:
        newest = self.newest
        read_to = self.former.get(event.partition, UNSEEN)
        if newest is None or event.generation > newest.generation >= 0:
            self._advance(event)
            return Finding((DELIVERED,))
        unseen = event.offset > read_to
        older = 0 <= event.generation < newest.generation
        if late or (not unseen and happened_before(event, newest)):
            self._read(event)
            return Finding((DELIVERED, LATE) if unseen else (LATE,))
        if not older:
            if unseen:
                self._advance(event)
            return Finding((DELIVERED if unseen else REDELIVERED,))
        self._read(event)
        kind = BEFORE_GATE if unseen else OUT_OF_ORDER
        counts = (DELIVERED, kind) if unseen else (kind,)
        return Finding(counts, (Violation.of(kind, event, before=newest),))

    def _advance(self, event: Event) -> None:
        self.newest = event
        self._read(event)

    def _read(self, event: Event) -> None:
        if event.offset > self.former.get(event.partition, UNSEEN):
            self.former[event.partition] = event.offset

    def _take_skipped(self, sequence: int) -> Skip | None:
        at = bisect.bisect_right(self.skipped, sequence, key=lambda skip: skip.first) - 1
        if at < 0 or self.skipped[at].last < sequence:
            return None
        skip = self.skipped[at]
        rest = [skip._replace(last=sequence - 1), skip._replace(first=sequence + 1)]
        self.skipped[at : at + 1] = [one for one in rest if one.first <= one.last]
        return skip

    def _tell_if_lost(self, skip: Skip, clock_ms: int, timeout_ms: int) -> tuple[Violation, ...]:
        """Report the loss of sequences that arrive after `timeout_ms`: until now they were lost."""
        if skip.reported or clock_ms - skip.by.time_ms < timeout_ms:
            return ()
        self.skipped = [
            one._replace(reported=True) if skip.first <= one.first <= skip.last else one for one in self.skipped
        ]
        return (loss(skip),)


def loss(skip: Skip) -> Violation:
    """Return the violation of sequences that were skipped and never arrived."""
    by = skip.by
    span = (skip.first, skip.last)
    return Violation(LOST, by.group, by.topic, by.producer, by.key, before=skip.before, after=by, sequences=(span,))
