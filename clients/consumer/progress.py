"""How far one consumer is in each of its partitions, and what it has fetched ahead.

Three offsets per partition: `committed` <= `position` (the next record to hand out) <= `fetch_offset` (the next to ask
for); only a seek, or a reset of the group's offsets, breaks that order. Fetched batches wait undecoded; a
batch belongs to one segment, because a batch has one leader epoch. Batches of aborted transactions, and the markers
that end transactions, hold nothing to hand out and are passed like any other, so that a position reaches the end of its
segment.

Invariant: everything that is said of a partition's records (announced, flushed, crossed, handed out) is said of what
was read since the last beginning there (`begun`), and a seek or a new assignment forgets it. Only the methods of
`PartitionProgress` and `Assignment` change what stands here; everybody else calls them. Pure.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.clients.consumer.consumer_record import NO_GENERATION, ConsumerRecord, consumer_records
from anabranch.protocol.apis.fetch import AbortedTransaction
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.lineage import Segment
from anabranch.protocol.records.batch import BatchHeader, check_crc, iter_batches
from anabranch.protocol.records.control import ControlType, read_control
from anabranch.protocol.records.record import RecordReader
from anabranch.protocol.topic_partition import TopicPartition

UNKNOWN: Final = -1
BUFFERED_BYTES_MAX: Final = 512 * 1024
"""A partition with this much waiting is not fetched further."""
READ_AHEAD: Final = 500
"""How many records are read at once where they are handed out one by one: `max_poll_records` is as many."""


@dataclass(slots=True)
class FetchedBatch:
    """One batch as it came, and what of it is still to be handed out, once it has been looked into."""

    header: BatchHeader
    data: bytes | bytearray | memoryview
    aborted: bool = False
    """It belongs to a transaction that was aborted, and only committed records are wanted."""
    unread: RecordReader | None = None
    ready: Iterator[ConsumerRecord] = iter(())
    """Records that were read already."""
    generation: int = NO_GENERATION
    """What they bear."""

    @property
    def next_offset(self) -> int:
        """The first offset after the batch."""
        return self.header.base_offset + self.header.last_offset_delta + 1


@dataclass(slots=True)
class PartitionProgress:
    """One assigned partition."""

    partition: TopicPartition
    position: int = UNKNOWN
    committed: int = UNKNOWN
    fetch_offset: int = UNKNOWN
    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    """Below it every transaction has ended: where reading committed records stops."""
    log_start: int = UNKNOWN
    """Where the log begins, as last heard: what was fetched below it is deleted by now."""
    handed_out: int = UNKNOWN
    """Where the application has to commit to, for everything it was given to count as processed. UNKNOWN: nothing."""
    read_from: int = UNKNOWN
    """The offset at which reading last began, by assignment or by a seek."""
    beginnings: Iterator[int] = field(default_factory=itertools.count)
    """Numbers the beginnings of all partitions of the consumer."""
    begun: int = UNKNOWN
    """The number of the last beginning here: what is handed out again under the same one was not asked for."""
    rewound: bool = False
    """Whether the application went back behind what was committed, and nothing was committed since."""
    unflushed: bool = False
    """Whether records were handed out since the application was last told to flush."""
    paused: bool = False
    out_of_range: bool = False
    """The leader has nothing at `fetch_offset`: no more is asked for until the position is reset."""
    damaged: bool = False
    """The leader cannot read what it has at `fetch_offset`: the application is told, and then it is asked again."""
    buffered: deque[FetchedBatch] = field(default_factory=deque)
    buffered_bytes: int = 0
    announced: set[Segment] = field(default_factory=set)
    """Segments whose keys the listener has been told of (on_partition_key_assigned)."""
    flushed: set[Segment] = field(default_factory=set)
    """Segments that were read to their end and flushed (on_partition_key_maybe_revoked)."""
    crossed: set[Segment] = field(default_factory=set)
    """Segments that were read to their end, flushed and committed (R10)."""

    @property
    def fetchable(self) -> bool:
        """Whether more of it should be asked for."""
        return (
            self.fetch_offset != UNKNOWN
            and not self.paused
            and not self.out_of_range
            and not self.damaged
            and self.buffered_bytes < BUFFERED_BYTES_MAX
        )

    @property
    def processed(self) -> bool:
        """Whether the application has itself committed everything that it was given."""
        if self.rewound and self.handed_out > self.read_from:
            return False  # what was committed before it went back says nothing of what it was given since
        return self.handed_out == UNKNOWN or self.committed >= self.handed_out

    @property
    def must_reset(self) -> bool:
        """Whether there is nothing more to hand out and nothing at the position to fetch."""
        return self.out_of_range and not self.buffered

    def pause(self) -> None:
        """Hand out and ask for nothing until `resume`."""
        self.paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        self.paused = False

    def announce(self, segment: Segment) -> None:
        """The application was told that keys of this segment may arrive."""
        self.announced.add(segment)

    def flush(self, segment: Segment | None = None) -> None:
        """The application has flushed what it was given, up to the end of `segment` if that end is where it stands."""
        self.unflushed = False
        if segment is not None:
            self.flushed.add(segment)

    def cross(self, segment: Segment) -> None:
        """What was read of this segment is flushed and committed: records of the next one may follow."""
        self.crossed.add(segment)

    def note_log_start(self, offset: int) -> bool:
        """A leader told where its log begins; return whether fetched records were deleted."""
        moved, self.log_start = self.position < offset != self.log_start, offset
        return moved

    def pass_gap(self, offset: int) -> None:
        """Move the position to `offset` across offsets that hold no record any more, as compaction leaves them."""
        self.position = max(self.position, offset)

    def note_ends(self, *, high_watermark: int, last_stable_offset: int) -> None:
        """A leader answered a fetch, and told how far its log can be read."""
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset

    def note_out_of_range(self, fetched_at: int) -> bool:
        """The leader has nothing at the offset it was asked for; whether that still is the one that is wanted."""
        self.out_of_range = self.fetch_offset == fetched_at
        return self.out_of_range

    def note_damage(self, fetched_at: int) -> bool:
        """The leader cannot read what it has at that offset; whether that still is the one that is wanted."""
        self.damaged = self.fetch_offset == fetched_at
        return self.damaged

    def begin(self, offset: int, *, committed: int = UNKNOWN) -> None:
        """Start where the group, or the reset policy, says: nothing of this partition has been handed out yet."""
        self.seek(offset)
        self.handed_out = UNKNOWN
        self.note_committed(committed)

    def note_committed(self, offset: int, begun: int | None = None) -> None:
        """The group has this offset now. `begun` numbers the beginning in which it was sent, None means the last one.

        An offset that was on its way when the application went back says nothing of what it has been given since.
        """
        self.committed = offset
        self.rewound = begun is not None and begun != self.begun and self.read_from < offset

    def seek(self, offset: int) -> None:
        """Continue at `offset`; what was fetched ahead is forgotten, and gates are looked at afresh (R11).

        Where to begin is the application's word now: it counts as processed only when it has committed it.
        """
        self.position = self.fetch_offset = self.handed_out = self.read_from = offset
        self.begun = next(self.beginnings)
        self.rewound = offset < self.committed
        self.out_of_range = self.damaged = False
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
        """Take the batches of a fetch that asked from `fetched_at`; returns how many. A stale answer is ignored.

        `aborted`: the aborted transactions that begin in these batches, or are open where they begin.
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
        """Drop fetched records that were deleted since, and return whether the position moved.

        Where all that was fetched is deleted and more, the position stays: the next fetch is out of range, and the
        reset policy decides.
        """
        while self.buffered and self.buffered[0].next_offset <= self.log_start:
            self.buffered_bytes -= self.buffered.popleft().header.size_bytes
        if not self.position < self.log_start <= self.fetch_offset:
            return False
        self.position = self.log_start
        return True

    def next_is_of(self, batch: FetchedBatch) -> bool:
        """Whether the next record to hand out is one of this batch."""
        return not self.paused and bool(self.buffered) and self.buffered[0] is batch

    def take(self, limit: int, generation: int = NO_GENERATION) -> list[ConsumerRecord]:
        """Up to `limit` records of the first waiting batch, moving the position; control batches give none.

        `generation` is what they bear: that of the batch's segment.
        """
        batch = self.buffered[0]
        taken: list[ConsumerRecord] = []
        try:
            if batch.unread is None or batch.generation != generation:
                self._look_into(batch, generation)
            taken += itertools.islice(batch.ready, limit)
            while len(taken) < limit and batch.unread is not None and batch.unread.left:
                batch.ready = iter(self._read(batch, batch.unread))
                taken += itertools.islice(batch.ready, limit - len(taken))
        except DecodeError as reason:
            if not taken:  # else the next call meets it again
                what = f"batch at offset {batch.header.base_offset} ({reason})"
                raise self._corrupt(what, f"to offset {batch.next_offset}") from None
        else:
            if len(taken) < limit:
                self._finish(batch)
        if taken:
            self.handed_out = taken[-1].offset + 1
            self.unflushed = True
            if self.buffered and self.buffered[0] is batch:
                self.position = self.handed_out
                if self.position == batch.next_offset:
                    self._finish(batch)
        return taken

    def _look_into(self, batch: FetchedBatch, generation: int) -> None:
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
        """Tell the application that the record it waits for is damaged where it is stored; then ask for it again.

        It may be sound elsewhere, and another leader is found without a word of the application.
        """
        if self.damaged and not self.buffered and not self.paused:
            self.damaged = False
            raise self._corrupt(f"record at offset {self.fetch_offset}", "behind it")

    def _corrupt(self, what: str, where: str) -> KafkaError:
        text = f"{self.partition}: the {what} is damaged; seek {where} to go on without it"
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, text)

    def _finish(self, batch: FetchedBatch) -> None:
        self.buffered.popleft()
        self.buffered_bytes -= batch.header.size_bytes
        self.position = batch.next_offset


class _Aborted:
    """Tells, batch after batch, whether one belongs to an aborted transaction: from its first offset to its marker."""

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
        return False  # whatever it was meant to say


class Assignment:
    """The partitions of one member, with a fair turn for each."""

    def __init__(self) -> None:
        self._progress: dict[TopicPartition, PartitionProgress] = {}
        self._first = 0
        self._beginnings = itertools.count()
        self.positioned = True
        """Whether every partition has been given a position since the last change."""
        self.generations: Mapping[str, int] = {}
        """Of each topic, the generation that the assignment was made from."""

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._progress

    def __getitem__(self, partition: TopicPartition) -> PartitionProgress:
        return self._progress[partition]

    def __iter__(self) -> Iterator[PartitionProgress]:
        return iter(self._progress.values())

    def __len__(self) -> int:
        return len(self._progress)

    def get(self, partition: TopicPartition) -> PartitionProgress | None:
        """The progress of a partition, None if it is not assigned."""
        return self._progress.get(partition)

    def replace(self, partitions: Collection[TopicPartition]) -> None:
        """A new assignment: nothing of the old one is kept, for its committed offsets are read again."""
        self._progress = {
            partition: PartitionProgress(partition, beginnings=self._beginnings) for partition in sorted(partitions)
        }
        self.positioned = False

    def adjust(self, partitions: Collection[TopicPartition]) -> None:
        """Other partitions, of which those that stay go on where they are."""
        kept = self._progress
        self.replace(partitions)
        self._progress.update({partition: kept[partition] for partition in self._progress.keys() & kept.keys()})

    def note_positioned(self, *, complete: bool) -> None:
        """Positions were looked for; `complete` says whether there is one in every partition that exists."""
        self.positioned = complete

    def note_generations(self, generations: Mapping[str, int]) -> None:
        """The assignment was made from these generations of its topics."""
        self.generations = generations

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions that are not assigned any more."""
        self._progress = {one: progress for one, progress in self._progress.items() if one not in partitions}

    def drop_topic(self, topic: str) -> None:
        """A topic is gone: what was read of it says nothing about another one of the same name."""
        self.drop({one for one in self._progress if one.topic == topic})

    def in_turn(self) -> list[PartitionProgress]:
        """All of them, starting one further each time, so that none is starved by a busy neighbour."""
        rows = list(self._progress.values())
        if not rows:
            return rows
        self._first = (self._first + 1) % len(rows)
        return rows[self._first :] + rows[: self._first]

    def positions(self) -> dict[TopicPartition, int]:
        """What a commit would say now: known positions that are not committed yet."""
        return {
            progress.partition: progress.position
            for progress in self
            if progress.position != UNKNOWN and progress.position != progress.committed
        }
