"""A producer's queues for a topic: batches per partition, in the order in which their records were appended.

A batch is *waiting* until it is first transmitted and *unresolved* from then until its outcome is known: acknowledged,
refused for good, or given up. A switch (`switch`) depends on the difference: a waiting batch exists only here and may
be taken apart; an unresolved one may be in the leader's log already.

Invariants of a queue:
    unresolved batches are in the order of their sequence numbers and all carry one batch generation
    waiting batches are younger, carry the queue's own batch generation, and have no sequence number yet

Only data; `accumulator` and `switch` decide. This module uses no clock and no futures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from anabranch.clients.producer.producer_record import Record, RecordMetadata, size_of
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.linear_hashing import EVERY_KEY, KeyClass, addressing, key_class
from anabranch.protocol.records.batch import SEQUENCES
from anabranch.protocol.records.batch_builder import BatchBuilder

NO_GENERATION: Final = -1
PRODUCER_EPOCH_MAX: Final = 32767
NO_LIMIT: Final = 1 << 62


class Batch:
    """Records of one batch, with the generation for which they were partitioned."""

    __slots__ = (
        "attempts",
        "base_sequence",
        "batch_generation",
        "built",
        "created_at",
        "done",
        "doubtful",
        "key_class",
        "last_error",
        "marked",
        "on_wire",
        "ordinal",
        "producer_epoch",
        "producer_id",
        "queue",
        "records",
        "retry_at",
        "size_bytes",
        "topic_id",
    )

    def __init__(self, queue: PartitionQueue, created_at: float) -> None:
        self.queue = queue
        self.created_at = created_at
        self.topic_id = queue.topic.topic_id
        self.batch_generation = queue.batch_generation
        self.key_class = queue.key_class
        self.records: list[Record] = []
        self.marked: list[Record] | None = None
        """The same records with other audit numbers (`audit_marks`), if they are transmitted so."""
        self.size_bytes = 0
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1
        self.built: bytes | None = None
        self.ordinal = -1
        """The batch's number among those transmitted to its partition, from 0; -1 before its first transmission."""
        self.attempts = 0
        self.retry_at = 0.0
        self.last_error: ErrorCode | None = None
        """The error of the last transmission; None if it got no response."""
        self.on_wire = False
        self.done = False
        self.doubtful = False
        """Whether a transmission got no response, so the batch may be in the log."""

    def bytes_with(self, compression: str, *, transactional: bool = False) -> bytes:
        """Encode the batch. Built once, unless its sequence numbers change."""
        if self.built is None:
            builder = BatchBuilder(compression, limit_bytes=NO_LIMIT)
            append = builder.append
            for _, _, key, value, headers, timestamp_ms, _ in self.marked or self.records:
                append(key, value, headers, timestamp_ms)
            self.built = builder.build(self.producer_id, self.producer_epoch, self.base_sequence, transactional)
        return self.built

    def part(self, start: int, stop: int) -> Batch:
        """Return some of the records, with their sequence numbers and the batch's own age and generation."""
        part = Batch(self.queue, self.created_at)
        part.topic_id, part.batch_generation, part.key_class = self.topic_id, self.batch_generation, self.key_class
        part.records = self.records[start:stop]
        part.size_bytes = sum(size_of(one.key, one.value, one.headers) for one in part.records)
        part.producer_id, part.producer_epoch = self.producer_id, self.producer_epoch
        part.base_sequence = (self.base_sequence + start) % SEQUENCES if self.base_sequence >= 0 else -1
        part.ordinal, part.attempts = self.ordinal, self.attempts
        return part

    @property
    def of_deleted_topic(self) -> bool:
        """Whether it was partitioned for an earlier topic of this name."""
        return self.topic_id != self.queue.topic.topic_id

    @property
    def names_topic(self) -> bool:
        """Whether its requests have the topic's id, so that no other topic can store it."""
        return self.batch_generation >= 0

    def keep(self, records: list[Record]) -> None:
        """Keep only these records; the batch has not been transmitted."""
        self.records = records
        self.size_bytes = sum(size_of(one.key, one.value, one.headers) for one in records)

    def complete(self, base_offset: int, log_append_time_ms: int) -> None:
        """Complete the records' futures with their offsets."""
        self.done = True
        topic, partition = self.queue.topic.name, self.queue.index
        for offset, record in enumerate(self.records, base_offset) if base_offset >= 0 else self._without_offsets():
            if not record.receipt.done():
                timestamp_ms = record.timestamp_ms if log_append_time_ms < 0 else log_append_time_ms
                record.receipt.set_result(RecordMetadata(topic, partition, offset, timestamp_ms))

    def _without_offsets(self) -> Iterable[tuple[int, Record]]:
        return ((-1, record) for record in self.records)

    def fail(self, error: Exception) -> None:
        """Fail the records' futures."""
        self.done = True
        for record in self.records:
            if not record.receipt.done():
                record.receipt.set_exception(error)

    def __repr__(self) -> str:
        state = "done" if self.done else "on wire" if self.on_wire else "unresolved" if self.attempts else "waiting"
        return (
            f"<Batch {self.queue.topic.name}-{self.queue.index}@{self.batch_generation} {len(self.records)} records "
            f"from sequence {self.base_sequence}, {state}>"
        )


class PartitionQueue:
    """The batches of one partition and this producer's sequence in it."""

    __slots__ = (
        "batch_generation",
        "blocked_since",
        "established",
        "fence",
        "give_up",
        "index",
        "key_class",
        "live",
        "next_sequence",
        "producer_epoch",
        "producer_id",
        "restart",
        "topic",
        "transmitted",
        "unresolved",
        "waiting",
    )

    def __init__(self, topic: TopicQueues, index: int) -> None:
        self.topic = topic
        self.index = index
        self.waiting: deque[Batch] = deque()
        self.unresolved: deque[Batch] = deque()
        self.batch_generation = NO_GENERATION
        self.key_class: KeyClass = EVERY_KEY
        self.live = True
        self.fence = NO_GENERATION
        """The highest generation with which the leader refused a batch: nothing older may be transmitted to it."""
        self.producer_id = -1
        self.producer_epoch = 0
        self.next_sequence = 0
        self.transmitted = 0
        """Number of transmitted batches, without retries."""
        self.blocked_since: float | None = None
        """Since when the next batch has had no reachable leader."""
        self.established = False
        """Whether the leader has acknowledged a batch, and therefore checks the next one's sequence (K506)."""
        self.restart = False
        """Sequence numbers have a permanent gap: restart with a new epoch."""
        self.give_up = False
        """A transmitted batch was given up: restart with a new epoch once the others are resolved."""
        topic.locate(self)

    @property
    def fenced(self) -> bool:
        """Whether the leader is known to refuse the generation of the queue's batches."""
        return self.fence > self.batch_generation

    @property
    def idle(self) -> bool:
        """Whether nothing is waiting or in flight."""
        return not self.waiting and not self.unresolved

    def on_wire(self) -> int:
        """The number of batches in flight."""
        return sum(batch.on_wire for batch in self.unresolved)

    def begins_batch(self, size_bytes: int, limit_bytes: int) -> bool:
        """Whether a record of this size does not fit into the youngest batch."""
        return not self.waiting or self.waiting[-1].size_bytes + size_bytes > limit_bytes

    def add(self, record: Record, size_bytes: int, limit_bytes: int, now: float) -> bool:
        """Append a record to the youngest waiting batch, or to a new one; return whether a batch was started."""
        waiting = self.waiting
        if waiting:
            batch = waiting[-1]
            if batch.size_bytes + size_bytes <= limit_bytes:
                batch.records.append(record)
                batch.size_bytes += size_bytes
                return False
        batch = Batch(self, now)
        batch.records.append(record)
        batch.size_bytes = size_bytes
        waiting.append(batch)
        return True

    def number(self, batch: Batch) -> None:
        """Assign the next sequence numbers to a batch."""
        batch.producer_id = self.producer_id
        batch.producer_epoch = self.producer_epoch
        batch.base_sequence = self.next_sequence
        batch.built = None
        self.next_sequence = (self.next_sequence + len(batch.records)) % SEQUENCES

    def rewind(self, batch: Batch) -> None:
        """Release the sequence numbers of a batch that was never appended (K505)."""
        if (batch.producer_id, batch.producer_epoch) != (self.producer_id, self.producer_epoch):
            return
        if (self.next_sequence - batch.base_sequence) % SEQUENCES < SEQUENCES // 2:
            self.next_sequence = batch.base_sequence

    def split(self, batch: Batch) -> None:
        """Replace an unresolved batch that the leader never appended by two halves, which share its sequence numbers.
        Younger batches count one more before them in the leader's window.
        """
        place = self.unresolved.index(batch)
        middle = len(batch.records) // 2
        halves = batch.part(0, middle), batch.part(middle, len(batch.records))
        for younger in [halves[1], *list(self.unresolved)[place + 1 :]]:
            younger.ordinal += 1
        self.transmitted += 1
        del self.unresolved[place]
        for half in reversed(halves):
            self.unresolved.insert(place, half)

    def begin_again(self, producer_id: int, producer_epoch: int) -> None:
        """Start a new epoch from 0: unresolved batches are renumbered in their order."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.next_sequence = 0
        self.established = self.restart = self.give_up = False
        for batch in self.unresolved:
            self.number(batch)

    def __repr__(self) -> str:
        return (
            f"<{self.topic.name}-{self.index}@{self.batch_generation}: {len(self.waiting)} waiting, "
            f"{len(self.unresolved)} unresolved, next sequence {self.next_sequence} of epoch {self.producer_epoch}>"
        )


class TopicQueues:
    """All queues of one topic, and the partitioning of its records."""

    __slots__ = (
        "address",
        "available",
        "closed",
        "gated",
        "keyless",
        "lineage",
        "live",
        "name",
        "queues",
        "ready",
        "refused",
        "returned",
        "starved",
        "topic_id",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic_id = b""
        self.lineage: Lineage | None = None
        self.live: tuple[int, ...] = ()
        self.gated = True
        """Whether the topic is ordered (`enable.ordered.delivery`)."""
        self.available: tuple[int, ...] = ()
        """Live partitions with a leader."""
        self.ready: tuple[int, ...] = ()
        """Available partitions whose leader accepts records: with enough in-sync replicas, if acks=all."""
        self.keyless: tuple[int, ...] = ()
        """Partitions for records without a key."""
        self.starved: frozenset[int] = frozenset()
        """Live partitions without enough in-sync replicas, if acks=all."""
        self.refused: frozenset[int] = frozenset()
        """Partitions for which `send` refuses records at present."""
        self.queues: dict[int, PartitionQueue] = {}
        self.closed: frozenset[int] = frozenset()
        """Partitions to which nothing new is transmitted, because older records of their keys are unresolved."""
        self.returned: list[tuple[Record, float]] = []
        """Records without a partition, with their append times: withdrawn by a switch or refused by a leader."""
        self.address: Callable[[int], int] = addressing(1, 1)
        """Key hash -> partition."""

    @property
    def generation(self) -> int:
        """The newest adopted generation; -1 without one."""
        return NO_GENERATION if self.lineage is None else self.lineage.generation

    def hash_over(self, lineage: Lineage | None, live: Sequence[int]) -> None:
        """Partition by this lineage from now on, or by Kafka's modulo if there is none."""
        self.lineage = lineage
        self.live = self.available = self.ready = self.keyless = tuple(live)
        self.starved = self.refused = frozenset()
        count = lineage.count if lineage is not None else max(self.live, default=0) + 1
        # Kafka's modulo is linear hashing at its base.
        self.address = addressing(count if lineage is None else lineage.base, count)

    def note_condition(self, *, leaderless: Collection[int], starved: Collection[int], refusing: bool) -> None:
        """Note partitions without a leader, and those with too few in-sync replicas to take a record now.

        Records without a key go to ready partitions; to available ones while none is ready, and to any while none is
        available. `refusing`: a starved partition gets no records at all, rather than late ones.
        """
        self.available = tuple(index for index in self.live if index not in leaderless)
        self.ready = tuple(index for index in self.available if index not in starved)
        self.starved = frozenset(starved)
        self.refused = self.starved if refusing else frozenset()
        fed = tuple(index for index in self.live if index not in self.refused)
        self.keyless = self.ready or (fed if refusing else self.available or self.live)

    def queue(self, index: int) -> PartitionQueue:
        """Return the queue of a partition; created at first use."""
        queue = self.queues.get(index)
        if queue is None:
            queue = self.queues[index] = PartitionQueue(self, index)
        return queue

    def locate(self, queue: PartitionQueue) -> bool:
        """Update a queue's batch generation and key class from the lineage; return whether its keys changed."""
        before = queue.batch_generation, queue.live
        index, lineage = queue.index, self.lineage
        if lineage is None:
            queue.live = index in self.live
            queue.batch_generation, queue.key_class = NO_GENERATION, EVERY_KEY
        else:
            queue.live = lineage.live(index)
            changes = lineage.class_generations(index)
            queue.batch_generation = changes[-1] if changes else NO_GENERATION
            if queue.live:
                held = key_class(index, lineage.base, lineage.count)
                assert held is not None, f"partition {index} is not live in {lineage!r}"
                queue.key_class = held
        return before != (queue.batch_generation, queue.live)
