"""The state of one group in one share partition: which member holds which records, and their delivery counts.

Offsets are *in flight* from the start offset, below which all are done, to the end offset, the last that was ever
acquired. They are kept as ordered ranges of one state, without gaps. A range that a member has acquired is locked until
it is acknowledged or its lock expires; then it is available again, or archived after too many deliveries. A change that
has to outlive this broker is returned as a list of `StateBatch`. It takes effect once it is stored (`complete`) or is
dropped (`roll_back`); until then no member can acquire its offsets.

A record that no member can process would fail the records delivered with it, too. If failing records are isolated,
records with many deliveries are acquired in ever smaller parts of their first batch, with nothing after them. Their
last delivery is alone.

Invariant: at most one member holds an offset, and an acknowledged or archived offset is never acquired again. No clock
and no I/O. Source: KIP-932; Kafka's `SharePartition` (`acquire`, `acquireSubsetBatchRecords`) and `InFlightState`.
"""

from __future__ import annotations

import bisect
import enum
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from anabranch.broker.coordinators.share_partitions.in_flight import (
    NOBODY,
    Acquired,
    InFlight,
    RecordState,
    StateBatch,
    changes_of,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import value

NEVER: Final = 2**31 - 1


class AcknowledgeType(enum.IntEnum):
    """The type of an acknowledgement of one offset."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


@value
class Acknowledgement:
    """An acknowledgement of offsets, both inclusive, with one type for all or one for each."""

    first: int
    last: int
    types: tuple[int, ...]

    def runs(self) -> Iterator[tuple[int, int, AcknowledgeType]]:
        """Yield ranges of one type each, as (first, last, type)."""
        if len(self.types) == 1:
            yield self.first, self.last, AcknowledgeType(self.types[0])
            return
        first = self.first
        for offset in range(self.first, self.last + 1):
            type_ = self.types[offset - self.first]
            if offset == self.last or self.types[offset + 1 - self.first] != type_:
                yield first, offset, AcknowledgeType(type_)
                first = offset + 1


class SharePartition:
    """The in-flight offsets of one group on the partition's leader."""

    def __init__(
        self,
        start_offset: int,
        batches: Iterable[StateBatch] = (),
        *,
        delivery_limit: int,
        max_locks: int,
        isolates: bool = False,
    ) -> None:
        """`batches` are the stored states from `start_offset` on. Offsets between them were never acquired.

        `isolates`: whether records with many deliveries are acquired in small parts.
        """
        self.delivery_limit = delivery_limit
        self.max_locks = max_locks
        self._often = max(2, -(-delivery_limit // 2)) if isolates else NEVER
        """The delivery count from which records are acquired in small parts."""
        self._alone = delivery_limit - 1 if isolates and delivery_limit > 2 else NEVER
        """The delivery count after which the next delivery is the last one."""
        self._start = start_offset
        self._flights: list[InFlight] = []
        for one in sorted(batches, key=lambda batch: batch.first):
            first = max(one.first, self.end_offset + 1)
            if first > self.end_offset + 1:
                self._append(self.end_offset + 1, first - 1, RecordState.AVAILABLE)
            if one.last >= first:
                self._append(first, one.last, one.state, one.delivery_count)
        self._advance()

    def __repr__(self) -> str:
        return f"from {self._start}: {', '.join(map(repr, self._flights)) or 'nothing'}"

    @property
    def start_offset(self) -> int:
        """The offset below which all are done."""
        return self._start

    @property
    def end_offset(self) -> int:
        """The last offset in flight; one below the start if there is none."""
        return self._flights[-1].last if self._flights else self._start - 1

    @property
    def next_fetch_offset(self) -> int:
        """The offset at which the next read starts."""
        return next((one.first for one in self._flights if one.free), self.end_offset + 1)

    @property
    def full(self) -> bool:
        """Whether nothing can be acquired: the limit of offsets in flight is reached, and none is available."""
        return self.end_offset - self._start + 1 >= self.max_locks and self.next_fetch_offset > self.end_offset

    @property
    def changing(self) -> bool:
        """Whether a change is being stored or waits for that."""
        return any(one.becomes is not None for one in self._flights)

    @property
    def next_lock_end_ms(self) -> int | None:
        """The earliest time at which a lock expires."""
        return min((one.locked_until_ms for one in self._flights if one.held), default=None)

    def flights(self) -> Sequence[InFlight]:
        """Return the ranges in flight, in order."""
        return self._flights

    # --- acquisition ---------------------------------------------------------------------------------------------

    def acquire(
        self,
        member: str,
        batches: Sequence[tuple[int, int]],
        *,
        max_records: int,
        batch_size: int,
        strict: bool,
        locked_until_ms: int,
    ) -> list[Acquired]:
        """Acquire available offsets of the batches that were read, given as (first, last), for a member.

        At most `max_records`, extended to the end of their last batch unless `strict`. Offsets between the batches no
        longer exist and are archived.
        """
        if not batches:
            return []
        self._archive_gaps(batches)
        acquired: list[Acquired] = []
        for one in self._choose(batches, max_records, batch_size, strict):
            one.state, one.member, one.locked_until_ms = RecordState.ACQUIRED, member, locked_until_ms
            one.delivery_count += 1
            acquired.append(Acquired(one.first, one.last, one.delivery_count))
        return acquired

    def _choose(
        self, batches: Sequence[tuple[int, int]], left: int, batch_size: int, strict: bool
    ) -> Iterator[InFlight]:
        """Yield the ranges to acquire: available ones in flight by batch, then new ones."""
        free = [one for one in self._ranges_between(batches[0][0], batches[-1][1]) if one.free]
        for number, (batch, group) in enumerate(itertools.groupby(free, key=lambda one: one.batch)):
            together = list(group)
            if any(one.delivery_count >= self._often for one in together):
                if not number:
                    yield from self._few(batch, together, left if strict else NEVER)
                return
            if together[0].delivery_count == 0:
                together = [part for one in together for part in self._parts(one, batches, left, batch_size, strict)]
            for one in together:
                if left <= 0 and (strict or one is together[0]):
                    return
                one = self._head(one, left) if strict else one
                left -= one.count
                yield one
        limit = min(left, self.max_locks - (self.end_offset - self._start + 1))
        for first, last in list(_chunks(batches, self.end_offset + 1, batches[-1][1], limit, batch_size, strict)):
            yield self._append(first, last, RecordState.AVAILABLE)

    def _parts(
        self, never: InFlight, batches: Sequence[tuple[int, int]], limit: int, batch_size: int, strict: bool
    ) -> Iterator[InFlight]:
        """Yield ranges of offsets that were skipped and never acquired, chunked like new ones."""
        for first, last in list(_chunks(batches, never.first, never.last, limit, batch_size, strict)):
            for one in self._ranges_between(first, last):
                one.batch = first, last
                yield one

    def _few(self, batch: tuple[int, int], free: Iterable[InFlight], limit: int) -> Iterator[InFlight]:
        """Yield the ranges of a batch to acquire together, although one of them has many deliveries.

        The first such range halves the batch, and each further delivery halves it again. Ranges before it count towards
        the limit; if they reach it already, nothing is held back, as in Kafka.
        """
        taken, few = 0, NEVER
        for one in free:
            is_last = one.delivery_count == self._alone
            if is_last and taken:
                return
            if few == NEVER and one.delivery_count >= self._often:
                few = max(1, (batch[1] - batch[0] + 1) >> (one.delivery_count - self._often + 1))
                few = few if few > taken else NEVER - 1
            head = self._head(one, 1 if is_last else min(few, limit) - taken)
            taken += head.last - head.first + 1
            yield head
            if is_last or taken >= min(few, limit):
                return

    def _head(self, one: InFlight, count: int) -> InFlight:
        """Return the range, split after `count` offsets."""
        if one.last - one.first + 1 > count:
            self._flights.insert(self._index(one.first) + 1, one.cut(one.first + count))
        return one

    def _append(self, first: int, last: int, state: RecordState, delivery_count: int = 0) -> InFlight:
        """Append a range as its own batch; the batches acquired under a previous leader are unknown."""
        self._flights.append(InFlight(first, last, state, delivery_count, (first, last)))
        return self._flights[-1]

    def _archive_gaps(self, batches: Sequence[tuple[int, int]]) -> None:
        """Archive offsets that no batch has any more, after compaction or deletion."""
        there = max(self.next_fetch_offset, self._start)
        for base, last in batches:
            if base > there:
                for one in self._ranges_between(there, base - 1):
                    if one.free:
                        one.state = RecordState.ARCHIVED
                if base > self.end_offset + 1:
                    self._append(self.end_offset + 1, base - 1, RecordState.ARCHIVED)
            there = max(there, last + 1)
        self._advance()

    def still_acquired(self, acquired: Iterable[Acquired]) -> list[Acquired]:
        """Return the parts of these ranges that a member still holds."""
        return [
            Acquired(max(flight.first, one.first), min(flight.last, one.last), one.delivery_count)
            for one in acquired
            for flight in self._overlapping(one.first, one.last)
            if flight.held
        ]

    def archive(self, first: int, last: int) -> None:
        """Archive offsets of an aborted transaction, so that no member gets them."""
        for one in self._ranges_between(first, last):
            if not one.state.terminal and one.becomes is None:
                one.state, one.member = RecordState.ARCHIVED, NOBODY
        self._advance()

    # --- acknowledgement -----------------------------------------------------------------------------------------

    def acknowledge(
        self, member: str, acknowledgements: Iterable[Acknowledgement], *, renewed_until_ms: int
    ) -> list[StateBatch]:
        """Acknowledge offsets that a member holds. Raises INVALID_RECORD_STATE, INVALID_REQUEST without any change.

        Offsets below the start are ignored.
        """
        runs = [run for one in acknowledgements for run in one.runs()]
        for first, last, _ in runs:
            if last > self.end_offset:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"offset {last} was never acquired")
            held = [one for one in self._overlapping(first, last) if not (one.held and one.member == member)]
            if held:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"{member} does not hold {held[0]}")
        changed: list[InFlight] = []
        for first, last, type_ in runs:
            for one in self._ranges_between(first, last):
                if type_ is AcknowledgeType.RENEW:
                    one.locked_until_ms = renewed_until_ms
                else:
                    one.becomes = self._fate(one, type_)
                    changed.append(one)
        return changes_of(changed)

    def _fate(self, one: InFlight, type_: AcknowledgeType) -> RecordState:
        if type_ is AcknowledgeType.ACCEPT:
            return RecordState.ACKNOWLEDGED
        if type_ is AcknowledgeType.RELEASE and one.delivery_count < self.delivery_limit:
            return RecordState.AVAILABLE
        return RecordState.ARCHIVED

    def release(self, member: str) -> list[StateBatch]:
        """Release the offsets of a member that left; those with too many deliveries are archived."""
        return self._release([one for one in self._flights if one.held and one.member == member])

    def expire(self, now_ms: int) -> list[StateBatch]:
        """Release the offsets whose locks have expired."""
        return self._release([one for one in self._flights if one.held and one.locked_until_ms <= now_ms])

    def _release(self, held: list[InFlight]) -> list[StateBatch]:
        for one in held:
            one.becomes = self._fate(one, AcknowledgeType.RELEASE)
        return changes_of(held)

    def complete(self, batches: Iterable[StateBatch]) -> None:
        """Apply a change that has been stored."""
        for one in self._changing(batches):
            assert one.becomes is not None
            one.state, one.becomes, one.member = one.becomes, None, NOBODY
        self._advance()

    def standing_after(self, batches: Iterable[StateBatch]) -> tuple[int, int]:
        """Return the start offset after a change, and the number of offsets after it that are done (KIP-1226)."""
        changing = {id(one) for one in self._changing(batches)}
        start, count = self._start, 0
        for one in self._flights:
            fate = one.becomes if id(one) in changing else one.state if one.becomes is None else None
            if fate is None or not fate.terminal:
                continue
            if one.first == start:
                start = one.last + 1
            else:
                count += one.last - one.first + 1
        return start, count

    def roll_back(self, batches: Iterable[StateBatch]) -> None:
        """Drop a change that could not be stored; members hold what they held."""
        for one in self._changing(batches):
            one.becomes = None

    def _changing(self, batches: Iterable[StateBatch]) -> Iterator[InFlight]:
        for batch in batches:
            yield from (one for one in self._overlapping(batch.first, batch.last) if one.becomes is not None)

    def move_start(self, offset: int) -> None:
        """Move the start offset; lower offsets can no longer be read."""
        for one in self._ranges_between(self._start, offset - 1):
            if one.becomes is None:
                one.state, one.member = RecordState.ARCHIVED, NOBODY
        if offset > self.end_offset + 1:
            self._append(self.end_offset + 1, offset - 1, RecordState.ARCHIVED)
        self._advance()

    def _advance(self) -> None:
        done = 0
        for one in self._flights:
            if not one.state.terminal:
                break
            done += 1
            self._start = one.last + 1
        del self._flights[:done]

    # --- ranges --------------------------------------------------------------------------------------------------

    def _index(self, offset: int) -> int:
        """Return the index of the range with `offset`, or of the first range after it."""
        place = bisect.bisect_right(self._flights, offset, key=lambda one: one.first)
        return place - 1 if place and self._flights[place - 1].last >= offset else place

    def _overlapping(self, first: int, last: int) -> Iterator[InFlight]:
        place = self._index(first)
        while place < len(self._flights) and self._flights[place].first <= last:
            yield self._flights[place]
            place += 1

    def _ranges_between(self, first: int, last: int) -> list[InFlight]:
        """Return the ranges of exactly these offsets, splitting at both ends."""
        first = max(first, self._start)
        if last < first or not self._flights:
            return []
        for offset in (first, last + 1):
            place = self._index(offset)
            if place < len(self._flights) and self._flights[place].first < offset <= self._flights[place].last:
                self._flights.insert(place + 1, self._flights[place].cut(offset))
        return list(self._overlapping(first, last))


def _chunks(
    batches: Sequence[tuple[int, int]], begin: int, end: int, limit: int, batch_size: int, strict: bool
) -> Iterator[tuple[int, int]]:
    """Yield ranges to acquire for the first time: whole log batches, merged up to `batch_size` offsets."""
    start: int | None = None
    done = begin - 1
    for base, last in batches:
        first, last = max(base, done + 1), min(last, end)
        if last < first:
            continue
        if limit <= 0:
            break
        if strict:
            last = min(last, first + limit - 1)
        limit -= last - first + 1
        if start is None:
            start = first
        done = last
        if done - start + 1 >= batch_size:
            yield start, done
            start = None
    if start is not None:
        yield start, done
