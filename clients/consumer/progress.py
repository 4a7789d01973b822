"""The positions of a consumer's partitions, and their fetched batches.

Three offsets per partition: `committed` <= `position` (the next record to deliver) <= `fetch_offset` (the next to
fetch); only a seek, or a reset of the group's offsets, breaks that order. Fetched batches wait undecoded; a batch
belongs to one key epoch, because a batch has one leader epoch. Batches of aborted transactions, and transaction
markers, deliver nothing and are passed like any other, so that a position reaches the end of its key epoch.

Invariant: the flags of a partition's records (announced, flushed, crossed, delivered) apply since the last start of
reading there (`begin_number`); a seek or a new assignment clears them. Only methods of `PartitionProgress` change this
state. Pure.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.clients.consumer.consumer_record import NO_GENERATION, ConsumerRecord, consumer_records
from anabranch.protocol.apis.fetch import AbortedTransaction
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.lineage import KeyEpoch
from anabranch.protocol.records.batch import BatchHeader, check_crc, iter_batches
from anabranch.protocol.records.control import ControlType, read_control
from anabranch.protocol.records.record import RecordReader
from anabranch.protocol.topic_partition import TopicPartition

UNKNOWN: Final = -1
BUFFERED_BYTES_MAX: Final = 512 * 1024
"""A partition with so many buffered bytes is not fetched further."""
READ_AHEAD: Final = 500
"""Number of records decoded at once where they are delivered one by one; equals `max_poll_records`."""


class _LookedAhead(Iterator[ConsumerRecord]):
    """Decoded records; the next one may have been looked at."""

    __slots__ = ("_next", "_rest")

    def __init__(self, records: Iterator[ConsumerRecord]) -> None:
        self._rest = records
        self._next: ConsumerRecord | None = None

    def look(self) -> ConsumerRecord | None:
        if self._next is None:
            self._next = next(self._rest, None)
        return self._next

    def __next__(self) -> ConsumerRecord:
        looked, self._next = self._next, None
        return next(self._rest) if looked is None else looked


@dataclass(slots=True)
class FetchedBatch:
    """One fetched batch, and its undelivered records once it is decoded."""

    header: BatchHeader
    data: bytes | bytearray | memoryview
    aborted: bool = False
    """Part of an aborted transaction, in a consumer that reads committed records only."""
    unread: RecordReader | None = None
    ready: Iterator[ConsumerRecord] = iter(())
    """Decoded records."""
    generation: int = NO_GENERATION
    """The records' generation."""

    @property
    def next_offset(self) -> int:
        """The first offset after the batch."""
        return self.header.base_offset + self.header.last_offset_delta + 1

    def look_ahead(self) -> ConsumerRecord | None:
        """Return the next decoded record, which stays the next one."""
        if not isinstance(self.ready, _LookedAhead):
            self.ready = _LookedAhead(self.ready)
        return self.ready.look()


@dataclass(slots=True)
class PartitionProgress:
    """One assigned partition."""

    partition: TopicPartition
    position: int = UNKNOWN
    committed: int = UNKNOWN
    fetch_offset: int = UNKNOWN
    high_watermark: int = UNKNOWN
    readable_to: int = UNKNOWN
    """Where fetches end now: at the high watermark, or at the last stable offset."""
    last_stable_offset: int = UNKNOWN
    """Below it every transaction has ended: a read_committed consumer stops here."""
    log_start: int = UNKNOWN
    """The last known log start offset: fetched records below it are deleted."""
    handed_out: int = UNKNOWN
    """The offset that the application must commit for all delivered records to count as processed. UNKNOWN: none."""
    read_from: int = UNKNOWN
    """The offset at which reading last began, by assignment or by a seek."""
    beginnings: Iterator[int] = field(default_factory=itertools.count)
    """Begin numbers, shared by all partitions of the consumer."""
    begin_number: int = UNKNOWN
    """The current begin number: a repeated delivery under the same number was not requested by a seek."""
    rewound: bool = False
    """Whether the application sought to before the committed offset, with no commit since."""
    unflushed_from: int = UNKNOWN
    """The lowest offset that was delivered since the application's last flush. UNKNOWN: none."""
    paused: bool = False
    out_of_range: bool = False
    """`fetch_offset` is out of the leader's range: no fetch until the position is reset."""
    fetched_again: bool = False
    """A reset would have gone back, so `fetch_offset` is fetched once more first (`confirm_range`)."""
    damaged: bool = False
    """The leader cannot read its log at `fetch_offset`: the application gets an error, then the fetch is repeated."""
    buffered: deque[FetchedBatch] = field(default_factory=deque)
    buffered_bytes: int = 0
    announced: set[KeyEpoch] = field(default_factory=set)
    """Key epochs announced by on_partition_key_assigned."""
    flushed: set[KeyEpoch] = field(default_factory=set)
    """Key epochs read to their end and flushed (on_partition_key_maybe_revoked)."""
    crossed: set[KeyEpoch] = field(default_factory=set)
    """Key epochs that were read to their end, flushed and committed (R10)."""

    @property
    def fetchable(self) -> bool:
        """Whether to fetch more of this partition."""
        return (
            self.fetch_offset != UNKNOWN
            and not self.paused
            and not self.out_of_range
            and not self.damaged
            and self.buffered_bytes < BUFFERED_BYTES_MAX
        )

    @property
    def awaited(self) -> bool:
        """Whether the leader has more records, or may have, and none is buffered."""
        return (
            not self.buffered
            and self.fetchable
            and (self.readable_to == UNKNOWN or self.fetch_offset < self.readable_to)
        )

    @property
    def processed(self) -> bool:
        """Whether the application has itself committed all delivered records."""
        if self.rewound and self.handed_out > self.read_from:
            return False  # a commit before the seek does not cover records delivered since
        return self.handed_out == UNKNOWN or self.committed >= self.handed_out

    @property
    def unflushed(self) -> bool:
        """Whether records were delivered since the application's last flush."""
        return self.unflushed_from != UNKNOWN

    @property
    def must_reset(self) -> bool:
        """Whether no records are buffered and the position is out of range."""
        return self.out_of_range and not self.buffered

    def pause(self) -> None:
        """Neither deliver nor fetch until `resume`."""
        self.paused = True

    def resume(self) -> None:
        """Continue after `pause`."""
        self.paused = False

    def announce(self, key_epoch: KeyEpoch) -> None:
        """Note that the application was notified of this key epoch's keys."""
        self.announced.add(key_epoch)

    def flush(self, key_epoch: KeyEpoch | None = None) -> None:
        """Note the application's flush, up to the end of `key_epoch` if the position is there."""
        self.unflushed_from = UNKNOWN
        if key_epoch is not None:
            self.flushed.add(key_epoch)

    def cross(self, key_epoch: KeyEpoch) -> None:
        """Note that this key epoch is flushed and committed: records of the next one may follow."""
        self.crossed.add(key_epoch)

    def note_log_start(self, offset: int) -> bool:
        """Note the leader's log start offset; return whether fetched records were deleted."""
        moved, self.log_start = self.position < offset != self.log_start, offset
        return moved

    def pass_gap(self, offset: int) -> None:
        """Move the position to `offset` over a gap without records, as compaction leaves them."""
        self.position = max(self.position, offset)

    def note_ends(self, *, high_watermark: int, last_stable_offset: int, committed_only: bool) -> bool:
        """Note the high watermark and last stable offset from a Fetch response; return whether they were unknown."""
        first = self.readable_to == UNKNOWN
        self.fetched_again = False
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.readable_to = last_stable_offset if committed_only else high_watermark
        return first

    def note_out_of_range(self, fetched_at: int) -> bool:
        """Note that the leader has no such offset; return whether it is still the one to fetch."""
        self.out_of_range = self.fetch_offset == fetched_at
        return self.out_of_range

    def confirm_range(self) -> None:
        """Fetch the position once more, before a reset to an earlier offset.

        A leader that has lost its last log start offset has the position in its range again, and asked for its first
        offset it returns one from before the position.
        """
        self.out_of_range = False
        self.fetched_again = True

    def note_damage(self, fetched_at: int) -> bool:
        """Note that the leader cannot read this offset; return whether it is still the one to fetch."""
        self.damaged = self.fetch_offset == fetched_at
        return self.damaged

    def begin(self, offset: int, *, committed: int = UNKNOWN) -> None:
        """Start at the group's or the reset policy's offset: nothing of this partition is delivered yet."""
        self.seek(offset)
        self.handed_out = UNKNOWN
        self.note_committed(committed)

    def note_committed(self, offset: int, begin_number: int | None = None) -> None:
        """Note the group's committed offset, sent under the begin number `begin_number` (None: the current one).

        A commit in flight at a seek does not cover records delivered since.
        """
        self.committed = offset
        self.rewound = begin_number is not None and begin_number != self.begin_number and self.read_from < offset

    def seek(self, offset: int) -> None:
        """Continue at `offset`; drop fetched batches, and evaluate gates again (R11).

        The application chose the start, so the position counts as processed only when it has committed it.
        """
        self.position = self.fetch_offset = self.handed_out = self.read_from = offset
        self.begin_number = next(self.beginnings)
        self.rewound = offset < self.committed
        self.out_of_range = self.fetched_again = self.damaged = False
        self.buffered.clear()
        self.buffered_bytes = 0
        self.announced.clear()
        self.flushed.clear()
        self.crossed.clear()

    def receive(
        self,
        records: bytes | bytearray | memoryview,
        fetched_at: int,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> int:
        """Add the batches of a fetch from `fetched_at`; return their number. A stale response is ignored.

        `aborted`: aborted transactions that begin in these batches, or are open where they begin.
        """
        if fetched_at != self.fetch_offset:
            return 0
        view = memoryview(records)
        taken = 0
        filtered = _Aborted(aborted)
        for position, header in iter_batches(view):
            batch = FetchedBatch(header, view[position : position + header.size_bytes])
            batch.aborted = filtered.has(batch)
            if batch.next_offset <= self.fetch_offset:
                continue
            self.buffered.append(batch)
            self.buffered_bytes += header.size_bytes
            self.fetch_offset = batch.next_offset
            taken += 1
        return taken

    def skip_deleted(self) -> bool:
        """Drop fetched records that were deleted since; return whether the position moved.

        If more than all fetched records are deleted, the position stays: the next fetch is out of range, and the reset
        policy decides.
        """
        while self.buffered and self.buffered[0].next_offset <= self.log_start:
            self.buffered_bytes -= self.buffered.popleft().header.size_bytes
        if not self.position < self.log_start <= self.fetch_offset:
            return False
        self.position = self.log_start
        return True

    def next_is_of(self, batch: FetchedBatch) -> bool:
        """Whether the next record to deliver belongs to this batch."""
        return not self.paused and bool(self.buffered) and self.buffered[0] is batch

    def next_timestamp(self, generation: int = NO_GENERATION) -> int | None:
        """Return the timestamp of the first batch's next record. Without one the batch is passed, as by `take`: None.

        `generation` is that of the batch's key epoch.
        """
        batch = self.buffered[0]
        try:
            if batch.unread is None or batch.generation != generation:
                self._decode(batch, generation)
            while (record := batch.look_ahead()) is None and batch.unread is not None and batch.unread.left:
                batch.ready = iter(self._read(batch, batch.unread))
        except DecodeError as reason:
            what = f"batch at offset {batch.header.base_offset} ({reason})"
            raise self._corrupt(what, f"to offset {batch.next_offset}") from None
        if record is None:
            self._finish(batch)
            return None
        return record.timestamp

    def take_next(self) -> ConsumerRecord:
        """Take the record whose timestamp `next_timestamp` has returned."""
        batch = self.buffered[0]
        record = next(batch.ready)
        self._hand_out(record.offset, record.offset + 1, batch)
        return record

    def take(self, limit: int, generation: int = NO_GENERATION) -> list[ConsumerRecord]:
        """Take up to `limit` records of the first batch and move the position; control batches have none.

        `generation` is that of the batch's key epoch.
        """
        batch = self.buffered[0]
        taken: list[ConsumerRecord] = []
        try:
            if batch.unread is None or batch.generation != generation:
                self._decode(batch, generation)
            taken += itertools.islice(batch.ready, limit)
            while len(taken) < limit and batch.unread is not None and batch.unread.left:
                batch.ready = iter(self._read(batch, batch.unread))
                taken += itertools.islice(batch.ready, limit - len(taken))
        except DecodeError as reason:
            if not taken:  # otherwise the next call meets the damage again
                what = f"batch at offset {batch.header.base_offset} ({reason})"
                raise self._corrupt(what, f"to offset {batch.next_offset}") from None
        else:
            if len(taken) < limit:
                self._finish(batch)
        if taken:
            self._hand_out(taken[0].offset, taken[-1].offset + 1, batch)
        return taken

    def _hand_out(self, first: int, end: int, batch: FetchedBatch) -> None:
        """Note that records of a batch are delivered, from an offset on to another."""
        self.handed_out = end
        if self.unflushed_from == UNKNOWN or first < self.unflushed_from:
            self.unflushed_from = first
        if self.buffered and self.buffered[0] is batch:
            self.position = end
            if end == batch.next_offset:
                self._finish(batch)

    def _decode(self, batch: FetchedBatch, generation: int) -> None:
        if not check_crc(batch.data, 0, batch.header):
            raise self._corrupt(f"batch at offset {batch.header.base_offset}", f"to offset {batch.next_offset}")
        batch.unread, batch.ready, batch.generation = RecordReader(batch.data), iter(()), generation
        if batch.header.is_control or batch.aborted:
            batch.unread.left = 0

    def _read(self, batch: FetchedBatch, unread: RecordReader) -> list[ConsumerRecord]:
        columns = unread.read(READ_AHEAD, before=batch.next_offset)
        offsets = columns.offsets
        if offsets and offsets[0] < self.position:
            first = sum(offset < self.position for offset in offsets)
            columns = columns.without(first)
        return consumer_records(columns, self.partition, batch.generation)

    def check_damage(self) -> None:
        """Raise an error for a damaged next record; then fetch it again.

        Another replica may have an intact copy, and a new leader is found without the application's help.
        """
        if self.damaged and not self.buffered and not self.paused:
            self.damaged = False
            raise self._corrupt(f"record at offset {self.fetch_offset}", "behind it")

    def _corrupt(self, what: str, where: str) -> KafkaError:
        text = f"{self.partition}: the {what} is damaged; seek {where} to skip it"
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, text)

    def _finish(self, batch: FetchedBatch) -> None:
        self.buffered.popleft()
        self.buffered_bytes -= batch.header.size_bytes
        self.position = batch.next_offset


class _Aborted:
    """Finds batches of aborted transactions, in log order: from a transaction's first offset to its marker."""

    def __init__(self, transactions: Sequence[AbortedTransaction]) -> None:
        self._to_come = deque(sorted(transactions, key=lambda one: one.first_offset))
        self._open: set[int] = set()

    def has(self, batch: FetchedBatch) -> bool:
        header = batch.header
        while self._to_come and self._to_come[0].first_offset < batch.next_offset:
            self._open.add(self._to_come.popleft().producer_id)
        if header.producer_id not in self._open or not header.is_transactional:
            return False
        if header.is_control and _is_abort(batch):
            self._open.discard(header.producer_id)
        return not header.is_control


def _is_abort(batch: FetchedBatch) -> bool:
    try:
        return read_control(batch.data).type is ControlType.ABORT
    except DecodeError:
        return False  # an unknown kind of marker
