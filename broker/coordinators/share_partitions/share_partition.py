"""What one group has done with the records of one partition that its members share: who holds which, how often.

Offsets are *in flight* from the start offset, below which everything is done, to the end offset, the last that was ever
handed out. They are kept as stretches of offsets of one fate, in order and without holes. A stretch that a member has
acquired is locked until it is acknowledged or its time is over; then it is available again, or archived after too many
deliveries. What has to outlive this broker is returned as a list of `StateBatch`: it holds once it is stored
(`complete`), or it did not happen (`roll_back`), and what it is about is nobody's until then.

A record that nobody can deal with would take with it those that are always delivered together with it. So where
failing records are isolated, those delivered often come in smaller and smaller parts of the batch in which they came
first, with nothing behind them, and for the last time alone.

Invariant: an offset is held by at most one member at a time, and one that is acknowledged or archived is never handed
out again. No clock and no I/O. Source: KIP-932; Kafka's `SharePartition` (`acquire`, `acquireSubsetBatchRecords`) and
`InFlightState`.
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
    """What a member says of an offset that it holds."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


@value
class Acknowledgement:
    """What a member says of offsets, both inclusive: one type for all of them, or one for each."""

    first: int
    last: int
    types: tuple[int, ...]

    def runs(self) -> Iterator[tuple[int, int, AcknowledgeType]]:
        """Offsets of one type each, as (first, last, type)."""
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
    """One partition as one group shares it, on the partition's leader."""

    def __init__(
        self,
        start_offset: int,
        batches: Iterable[StateBatch] = (),
        *,
        delivery_limit: int,
        max_locks: int,
        isolates: bool = False,
    ) -> None:
        """`batches`: what was stored of offsets from `start_offset` on. Offsets between them were never handed out.

        `isolates`: whether records that were delivered often are handed out with few others.
        """
        self.delivery_limit = delivery_limit
        self.max_locks = max_locks
        self._often = max(2, -(-delivery_limit // 2)) if isolates else NEVER
        """So many deliveries are many."""
        self._alone = delivery_limit - 1 if isolates and delivery_limit > 2 else NEVER
        """After so many the next one is the last."""
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
        """Everything below is done."""
        return self._start

    @property
    def end_offset(self) -> int:
        """The last offset in flight; one below the start where there is none."""
        return self._flights[-1].last if self._flights else self._start - 1

    @property
    def next_fetch_offset(self) -> int:
        """Where to read for whoever comes next."""
        return next((one.first for one in self._flights if one.free), self.end_offset + 1)

    @property
    def full(self) -> bool:
        """Whether nothing can be acquired: as many offsets are in flight as may be, and none of them is available."""
        return self.end_offset - self._start + 1 >= self.max_locks and self.next_fetch_offset > self.end_offset

    @property
    def changing(self) -> bool:
        """Whether a change is being stored, or waits for that."""
        return any(one.becomes is not None for one in self._flights)

    @property
    def next_lock_end_ms(self) -> int | None:
        """When `expire` has something to do, at the earliest."""
        return min((one.locked_until_ms for one in self._flights if one.held), default=None)

    def flights(self) -> Sequence[InFlight]:
        """What is in flight, in order."""
        return self._flights

    # --- handing out ---------------------------------------------------------------------------------------------

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
        """Lock available offsets of the batches that were read, given as (first, last), for a member.

        No more than `max_records`, but to the end of the batch in which they end unless `strict`. What lies between the
        batches is not there any more, so it is archived.
        """
        if not batches:
            return []
        self._archive_gaps(batches)
        acquired: list[Acquired] = []
        for one in self._chosen(batches, max_records, batch_size, strict):
            one.state, one.member, one.locked_until_ms = RecordState.ACQUIRED, member, locked_until_ms
            one.delivery_count += 1
            acquired.append(Acquired(one.first, one.last, one.delivery_count))
        return acquired

    def _chosen(
        self, batches: Sequence[tuple[int, int]], left: int, batch_size: int, strict: bool
    ) -> Iterator[InFlight]:
        """What is handed out: what has come back, batch by batch, then what is new."""
        free = [one for one in self._between(batches[0][0], batches[-1][1]) if one.free]
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
        """Stretches of offsets that were passed over and never handed out, as those that are new."""
        for first, last in list(_chunks(batches, never.first, never.last, limit, batch_size, strict)):
            for one in self._between(first, last):
                one.batch = first, last
                yield one

    def _few(self, batch: tuple[int, int], free: Iterable[InFlight], limit: int) -> Iterator[InFlight]:
        """Those of a batch that are handed out together although one of them was delivered often.

        The first such one halves the batch, once more for each further delivery; what comes before it counts, and
        where that is as much already nothing is held back, as in Kafka.
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
        """The stretch, cut so that it has no more than so many offsets."""
        if one.last - one.first + 1 > count:
            self._flights.insert(self._index(one.first) + 1, one.cut(one.first + count))
        return one

    def _append(self, first: int, last: int, state: RecordState, delivery_count: int = 0) -> InFlight:
        """What was handed out together before the last leader's end is not known: its batch is what has one fate."""
        self._flights.append(InFlight(first, last, state, delivery_count, (first, last)))
        return self._flights[-1]

    def _archive_gaps(self, batches: Sequence[tuple[int, int]]) -> None:
        """No batch holds these offsets any more (compaction, deletion): nobody can be given them."""
        there = max(self.next_fetch_offset, self._start)
        for base, last in batches:
            if base > there:
                for one in self._between(there, base - 1):
                    if one.free:
                        one.state = RecordState.ARCHIVED
                if base > self.end_offset + 1:
                    self._append(self.end_offset + 1, base - 1, RecordState.ARCHIVED)
            there = max(there, last + 1)
        self._advance()

    def held(self, acquired: Iterable[Acquired]) -> list[Acquired]:
        """What of these offsets is still its member's."""
        return [
            Acquired(max(flight.first, one.first), min(flight.last, one.last), one.delivery_count)
            for one in acquired
            for flight in self._overlapping(one.first, one.last)
            if flight.held
        ]

    def archive(self, first: int, last: int) -> None:
        """Nobody is to be given these offsets: they are of a transaction that was aborted."""
        for one in self._between(first, last):
            if not one.state.terminal and one.becomes is None:
                one.state, one.member = RecordState.ARCHIVED, NOBODY
        self._advance()

    # --- what becomes of it --------------------------------------------------------------------------------------

    def acknowledge(
        self, member: str, acknowledgements: Iterable[Acknowledgement], *, renewed_until_ms: int
    ) -> list[StateBatch]:
        """What a member says of offsets that it holds. Raises INVALID_RECORD_STATE, INVALID_REQUEST: nothing happened.

        Offsets below the start are passed over: nothing can be said of them any more.
        """
        runs = [run for one in acknowledgements for run in one.runs()]
        for first, last, _ in runs:
            if last > self.end_offset:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"offset {last} was never handed out")
            held = [one for one in self._overlapping(first, last) if not (one.held and one.member == member)]
            if held:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"{member} does not hold {held[0]}")
        changed: list[InFlight] = []
        for first, last, type_ in runs:
            for one in self._between(first, last):
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
        """A member is gone: what it holds is available again, or was delivered too often."""
        return self._let_go([one for one in self._flights if one.held and one.member == member])

    def expire(self, now_ms: int) -> list[StateBatch]:
        """The same of all whose time is over."""
        return self._let_go([one for one in self._flights if one.held and one.locked_until_ms <= now_ms])

    def _let_go(self, held: list[InFlight]) -> list[StateBatch]:
        for one in held:
            one.becomes = self._fate(one, AcknowledgeType.RELEASE)
        return changes_of(held)

    def complete(self, batches: Iterable[StateBatch]) -> None:
        """The change is stored: it holds."""
        for one in self._changing(batches):
            assert one.becomes is not None
            one.state, one.becomes, one.member = one.becomes, None, NOBODY
        self._advance()

    def standing_after(self, batches: Iterable[StateBatch]) -> tuple[int, int]:
        """Where the start will be once the change is stored, and how many offsets behind it are done (KIP-1226)."""
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
        """The change could not be stored: members hold what they held."""
        for one in self._changing(batches):
            one.becomes = None

    def _changing(self, batches: Iterable[StateBatch]) -> Iterator[InFlight]:
        for batch in batches:
            yield from (one for one in self._overlapping(batch.first, batch.last) if one.becomes is not None)

    def move_start(self, offset: int) -> None:
        """Nothing below `offset` can be read any more."""
        for one in self._between(self._start, offset - 1):
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

    # --- stretches -----------------------------------------------------------------------------------------------

    def _index(self, offset: int) -> int:
        """The place of the stretch that holds `offset`, or of the first one behind it."""
        place = bisect.bisect_right(self._flights, offset, key=lambda one: one.first)
        return place - 1 if place and self._flights[place - 1].last >= offset else place

    def _overlapping(self, first: int, last: int) -> Iterator[InFlight]:
        place = self._index(first)
        while place < len(self._flights) and self._flights[place].first <= last:
            yield self._flights[place]
            place += 1

    def _between(self, first: int, last: int) -> list[InFlight]:
        """The stretches of these offsets, cut so that they hold no others."""
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
    """Offsets from `begin` to `end` to hand out for the first time: whole batches of the log, together while there are
    fewer than `batch_size` offsets."""
    begun: int | None = None
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
        if begun is None:
            begun = first
        done = last
        if done - begun + 1 >= batch_size:
            yield begun, done
            begun = None
    if begun is not None:
        yield begun, done
