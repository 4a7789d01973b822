"""Buffers a producer's accepted records in batches, and tracks each batch until it is stored or failed.

Pure: time comes as `now` (seconds, any origin), nodes as a function, waits as instants to wake at. The sender calls
`drain`, transmits the batches that it returns (chosen by `drain_order`), and reports each outcome with `complete` or
`on_lost`; both may release further batches.

Sequence numbers are per partition and assigned at the first transmission. A batch that the leader never appended
returns them; a batch given up after a transmission leaves a gap, and the partition starts a new producer epoch, which
the leader tracks per partition too. A batch larger than its topic allows is split in two (KIP-126). Source: KIP-98,
KIP-360, `RecordAccumulator` and `TransactionManager`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

from anabranch.clients.backoff import Backoff
from anabranch.clients.config import ProducerConfig
from anabranch.clients.producer import switch
from anabranch.clients.producer.audit_marks import AuditMarks
from anabranch.clients.producer.delay_reasons import delay_reason, held_back_reason
from anabranch.clients.producer.drain_order import Drained, DrainOrder
from anabranch.clients.producer.keyless import withdraw_keyless
from anabranch.clients.producer.metrics import ProducerMetrics, Stalls, Statistics, metrics_of
from anabranch.clients.producer.own_partitioner import OwnPartitioner
from anabranch.clients.producer.partitioner import Sticky
from anabranch.clients.producer.producer_identity import Numbering
from anabranch.clients.producer.producer_record import Receipt, Record, size_of
from anabranch.clients.producer.queues import NO_GENERATION, Batch, PartitionQueue, TopicQueues
from anabranch.clients.producer.routes import UNKEYED, chosen_partition, not_live, too_few_replicas
from anabranch.clients.producer.transaction_errors import TransactionAborted
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.records.record import Headers

NO_NODE: Final = -1
_OUT_OF_SEQUENCE: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
_STORED: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class Accumulator:
    """The batches of one producer, by topic and partition."""

    def __init__(self, config: ProducerConfig, backoff: Backoff, rng: random.Random) -> None:
        self.config = config
        self.marks: AuditMarks | None = None
        self.partitioner: OwnPartitioner | None = None
        """The application's own partitioner, if any."""
        self.topics: dict[str, TopicQueues] = {}
        self.statistics = Statistics()
        self.stalls = Stalls()
        self.numbering = Numbering(config, self.statistics)
        self._turns = DrainOrder(config, self.numbering)
        self.outstanding = 0
        self.buffered_bytes = 0
        self.hurry = 0
        """While positive, waiting batches do not linger: a flush or the end of a transaction waits for them."""
        self.on_settled: Callable[[Sequence[Record]], None] = lambda records: None
        self.obstacle: Callable[[str, int], str] = lambda topic, index: ""
        """(topic, partition) -> why its leader cannot be reached, for the errors of expired records."""
        self._backoff = backoff
        self._rng = rng
        self._stickies: dict[str, Sticky] = {}
        self._active: dict[PartitionQueue, None] = {}
        self._order = 0

    # accept records

    @property
    def order(self) -> int:
        """The order of the next record: every record accepted so far has a lower one."""
        return self._order

    @property
    def full(self) -> bool:
        """Whether the buffer is full, so `append` should wait."""
        return self.buffered_bytes >= self.config.buffer_bytes

    @property
    def active(self) -> Collection[PartitionQueue]:
        """The partitions with records to send or in flight."""
        return self._active.keys()

    def metrics(self) -> ProducerMetrics:
        """Return counts of accepted and sent records, and the cost of resizes."""
        return metrics_of(
            self.statistics, self.stalls.over, records_sent=self._order, buffered_bytes=self.buffered_bytes
        )

    def topic(self, name: str) -> TopicQueues:
        """Return the queues of a topic; usable once `adopt` has set its partitions."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicQueues(name)
            self._stickies[name] = Sticky(self._rng)
        return topic

    def append(
        self,
        topic: TopicQueues,
        route: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        receipt: Receipt,
        now: float,
    ) -> bool:
        """Accept a record; return True to wake the sender. Raises `KafkaError` if its partition accepts none."""
        size_bytes = size_of(key, value, headers)
        if self.partitioner is not None and route >= UNKEYED:
            route, index = self.partitioner.place(topic, route, key, value, size_bytes)
        elif route >= 0:
            index = topic.address(route)
        elif route == UNKEYED:
            if not topic.keyless:
                raise too_few_replicas(topic)
            index = self._stickies[topic.name].current(topic.keyless)
        else:
            index = chosen_partition(route)
            if index not in topic.live:
                raise not_live(topic, index)
        if index in topic.refused:
            raise too_few_replicas(topic, index)
        queue = topic.queues.get(index) or topic.queue(index)
        record = Record(self._order, route, key, value, headers, timestamp_ms, receipt)
        new_batch = queue.add(record, size_bytes, self.config.batch_bytes, now)
        self._order += 1
        self.outstanding += 1
        self.buffered_bytes += size_bytes
        if new_batch:
            self._active[queue] = None
            if route == UNKEYED and len(queue.waiting) > 1:
                self._stickies[topic.name].move_on(topic.keyless)
        return new_batch or self.buffered_bytes >= self.config.buffer_bytes

    def adopt(
        self, name: str, topic_id: bytes, lineage: Lineage | None, live: Sequence[int], *, has_generations: bool = True
    ) -> None:
        """Adopt a topic's metadata; a newer generation starts a switch. `has_generations=False`: Kafka's own rules."""
        topic = self.topic(name)
        known = topic.generation
        if switch.adopt(topic, topic_id, lineage if has_generations else None, live):
            self.statistics.switches += topic.generation > known
        self._settle(topic, force=True)

    def note_condition(self, name: str, *, leaderless: Collection[int], starved: Collection[int]) -> None:
        """Note partitions that cannot take a record now. Waiting records without a key leave those partitions."""
        topic = self.topics[name]
        topic.note_condition(
            leaderless=leaderless, starved=starved, refusing=self.config.refuse_below_min_insync_replicas
        )
        if withdraw_keyless(topic):
            self._settle(topic, force=True)

    def note_gone(self, name: str, listed: Collection[int]) -> None:
        """Note which partitions exist. A merged and removed partition answers no request any more.

        Records that it is known to have refused are partitioned again. A batch of unknown outcome may have been stored
        and read before the removal: sent elsewhere it would be a duplicate, so its delivery timeout decides (K504). In
        another topic than that of its requests it would be none.
        """
        topic = self.topics[name]
        for queue in topic.queues.values():
            if queue.live or queue.index in listed:
                continue
            for batch in [one for one in queue.unresolved if not one.on_wire and not switch.may_be_stored(one)]:
                self.statistics.refused_batches += 1
                switch.refuse(batch, queue.batch_generation)
        self._settle(topic, force=True)

    # drain

    def drain(self, now: float, leader_of: Callable[[str, int], int], may_send_to: Callable[[int], bool]) -> Drained:
        """Take the batches to transmit now. Each one is in flight until `complete` or `on_lost`."""
        self._expire(now)
        drained = Drained()
        self.stalls.update(self.topics.values(), now)
        for topic in self.topics.values():
            if topic.returned:
                self._wait_for_place(topic, drained)
        taken: dict[int, int] = {}
        hurried = self.hurry > 0 or self.full
        for queue in list(self._active):
            if queue.idle:
                del self._active[queue]
                continue
            drained.wake_by(self._deadline(queue))
            batch = self._turns.next_of(queue, now, drained, hurried=hurried)
            if batch is None:
                queue.blocked_since = None
                continue
            node = leader_of(queue.topic.name, queue.index)
            if node == NO_NODE or not may_send_to(node):
                drained.refresh = drained.refresh or node == NO_NODE
                if queue.blocked_since is None:
                    queue.blocked_since = now
            elif self._fits(taken.get(node, 0), batch):
                queue.blocked_since = None
                taken[node] = taken.get(node, 0) + batch.size_bytes
                self._transmit(queue, batch)
                drained.requests.setdefault(node, []).append(batch)
                # Served queues move to the back, so that a full request does not starve the others.
                del self._active[queue]
                self._active[queue] = None
        return drained

    def _wait_for_place(self, topic: TopicQueues, drained: Drained) -> None:
        """Returned records wait for batches, whose end is reported, or for metadata, which must be requested."""
        drained.wake_by(self._give_up_at(min(created_at for _, created_at in topic.returned)))
        drained.refresh = drained.refresh or any(queue.fenced for queue in topic.queues.values())

    def _fits(self, taken_bytes: int, batch: Batch) -> bool:
        return not taken_bytes or taken_bytes + batch.size_bytes <= self.config.request_bytes_max

    def _transmit(self, queue: PartitionQueue, batch: Batch) -> None:
        if batch.attempts == 0:
            queue.waiting.popleft()
            if self.config.enable_idempotence:
                queue.number(batch)
            queue.unresolved.append(batch)
            batch.ordinal = queue.transmitted
            queue.transmitted += 1
            self.statistics.batches += 1
        else:
            self.statistics.retries += 1
        if self.marks is not None and batch.built is None and not batch.doubtful:
            self.marks.apply(batch)
        batch.attempts += 1
        batch.on_wire = True

    # outcomes

    def complete(
        self,
        batch: Batch,
        code: ErrorCode,
        now: float,
        *,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        generation: int = -1,
        first_generation: int = -1,
        message: str | None = None,
    ) -> None:
        """Handle the leader's response for a batch.

        `generation` is that of its partition, and `first_generation` the one with which it was created, if the response
        has them.
        """
        batch.on_wire = False
        batch.last_error = code
        if batch.done:
            return
        queue = batch.queue
        if code in _STORED:
            queue.unresolved.remove(batch)
            if batch.batch_generation == queue.batch_generation and not batch.of_deleted_topic:
                queue.established = True
            batch.complete(base_offset, log_append_time_ms)
            self.statistics.acknowledged_records += len(batch.records)
            self._on_resolved(queue, batch.records)
        elif code == ErrorCode.INVALID_PARTITION_METADATA and switch.refusal_is_final(batch, generation):
            if switch.outcome_is_lost(batch, first_generation):
                self._fail_unknown(batch)
            else:
                self.statistics.refused_batches += 1
                switch.refuse(batch, generation)
                self._settle(queue.topic)
        elif self.config.enable_idempotence and code in _OUT_OF_SEQUENCE:
            # Behind an older unresolved batch that batch causes the error, and its retry resolves it.
            head = batch is queue.unresolved[0]
            if head and self.numbering.transactions is not None:
                self._fail_refused(batch, code, message)
            else:
                queue.restart = queue.restart or head
                self._later(batch, now)
        elif code == ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1 and not batch.doubtful:
            queue.split(batch)
            self.statistics.split_batches += 1
        elif batch.of_deleted_topic and switch.is_left_behind(batch, code):
            self.statistics.refused_batches += 1
            switch.refuse(batch, NO_GENERATION)
            self._settle(queue.topic)
        elif code.retriable:
            batch.doubtful = batch.doubtful or code not in switch.REFUSED_BEFORE_APPEND
            self._later(batch, now)
        else:
            self._fail_refused(batch, code, message)
        self.drop_doomed()

    def on_lost(self, batch: Batch, now: float) -> None:
        """Handle a transmission of unknown outcome: send the batch again unchanged.

        The leader recognises duplicates.
        """
        batch.on_wire = False
        batch.last_error = None
        batch.doubtful = True
        if not batch.done:
            self._later(batch, now)
        self.drop_doomed()

    def drop_doomed(self) -> None:
        """Fail batches that are not in flight if their transaction cannot be committed, or is being aborted."""
        transactions = self.numbering.transactions
        if transactions is None or not transactions.doomed:
            return
        error = transactions.failure or TransactionAborted(ErrorCode.OPERATION_NOT_ATTEMPTED, "the producer is closed")
        for topic in self.topics.values():
            for queue in topic.queues.values():
                for batch in [one for one in queue.unresolved if not one.on_wire]:
                    queue.unresolved.remove(batch)
                    transactions.batch_dropped()
                    batch.fail(error)
                    self._account(batch.records)
                waiting, queue.waiting = queue.waiting, deque()
                for batch in waiting:
                    batch.fail(error)
                    self._account(batch.records)
            returned, topic.returned = topic.returned, []
            self._fail([record for record, _ in returned], error)
            self._settle(topic)

    def abandon(self, error: Exception) -> None:
        """Fail all remaining records: the producer ends. A transaction with some of them can only be aborted."""
        known = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        for topic in self.topics.values():
            returned, topic.returned = topic.returned, []
            if returned:
                self._missing(topic, [record for record, _ in returned], known)
            self._fail([record for record, _ in returned], error)
            for queue in topic.queues.values():
                for batch in [*queue.unresolved, *queue.waiting]:
                    self._missing(topic, batch.records, known)
                    batch.fail(error)
                    self._account(batch.records)
                queue.unresolved.clear()
                queue.waiting.clear()

    def _later(self, batch: Batch, now: float) -> None:
        batch.retry_at = now + self._backoff.wait_ms(batch.attempts, self._rng) / 1000

    def _fail_refused(self, batch: Batch, code: ErrorCode, message: str | None) -> None:
        queue = batch.queue
        youngest = batch is queue.unresolved[-1]
        queue.unresolved.remove(batch)
        if youngest and not batch.doubtful and code != ErrorCode.UNKNOWN_SERVER_ERROR:
            queue.rewind(batch)
        else:
            # Later: batches that may be in the log keep their numbers, by which the leader recognises them.
            queue.give_up = self.config.enable_idempotence
        self._fail_batch(batch, KafkaError(code, message or f"{queue.topic.name}-{queue.index}"))

    def _fail_batch(self, batch: Batch, error: KafkaError) -> None:
        batch.fail(error)
        self._missing(batch.queue.topic, batch.records, error)
        self._on_resolved(batch.queue, batch.records)

    def _give_up(self, batch: Batch) -> None:
        """Wait no longer for the outcome of a transmitted batch."""
        batch.queue.unresolved.remove(batch)
        batch.queue.give_up = self.config.enable_idempotence

    def _fail_unknown(self, batch: Batch) -> None:
        """Fail a batch that a removed partition may have stored: its records may have been read."""
        self._give_up(batch)
        where = f"{batch.queue.topic.name}-{batch.queue.index}"
        text = f"{where} was merged away and removed before it responded: nobody can tell whether it stored the records"
        self._fail_batch(batch, KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))

    def _missing(self, topic: TopicQueues, records: Sequence[Record], error: KafkaError) -> None:
        """Note records that are not stored, or have an unknown outcome: their transaction must not be committed."""
        if self.marks is not None:
            self.marks.missing(topic.name, records)
        if self.numbering.transactions is not None:
            self.numbering.transactions.batch_failed(error.code, error.message)

    def _on_resolved(self, queue: PartitionQueue, records: Sequence[Record]) -> None:
        self._account(records)
        topic = queue.topic
        if topic.closed or topic.returned:
            self._settle(topic)

    def _settle(self, topic: TopicQueues, *, force: bool = False) -> None:
        sticky, homeward = self._stickies[topic.name], len(topic.returned)

        def choose(live: Sequence[int]) -> int:
            return sticky.current(topic.keyless or live)

        homeless = switch.settle(topic, choose, self.config.batch_bytes, force=force)
        self.statistics.rehashed_records += homeward - len(topic.returned) - len(homeless)
        for record in homeless:
            error = not_live(topic, chosen_partition(record.route))
            self._missing(topic, [record], error)
            self._fail([record], error)
        if force or topic.closed or not topic.returned:
            self._active.update(dict.fromkeys(queue for queue in topic.queues.values() if not queue.idle))

    # expiry

    def _deadline(self, queue: PartitionQueue) -> float:
        oldest = queue.unresolved[0] if queue.unresolved else queue.waiting[0]
        return self._give_up_at(oldest.created_at)

    def _give_up_at(self, created_at: float) -> float:
        """Return when a record or batch expires.

        Computed only here: a different rounding would wake the sender too early.
        """
        return created_at + self.config.delivery_timeout_ms / 1000

    def _expire(self, now: float) -> None:
        """Fail records older than the delivery timeout (K510); whether they were stored may remain unknown."""
        for queue in list(self._active):
            for batch in [one for one in queue.unresolved if self._give_up_at(one.created_at) <= now]:
                reason = self.why_late(queue, batch, now)
                self._give_up(batch)
                self._fail_expired(queue, batch, reason)
            while queue.waiting and self._give_up_at(queue.waiting[0].created_at) <= now:
                reason = self.why_late(queue, queue.waiting[0], now)
                self._fail_expired(queue, queue.waiting.popleft(), reason)
        for topic in self.topics.values():
            if topic.returned and self._give_up_at(min(created_at for _, created_at in topic.returned)) <= now:
                late = [record for record, created_at in topic.returned if self._give_up_at(created_at) <= now]
                topic.returned = [entry for entry in topic.returned if self._give_up_at(entry[1]) > now]
                error = self._timed_out(topic.name, held_back_reason(topic))
                self._missing(topic, late, error)
                self._fail(late, error)
                self.statistics.expired_records += len(late)
        self.drop_doomed()

    def why_late(self, queue: PartitionQueue, batch: Batch, now: float) -> str:
        """Describe what a batch waits for."""
        return delay_reason(
            queue,
            batch,
            now,
            obstacle=self.obstacle(queue.topic.name, queue.index),
            identified=batch.producer_id >= 0 or not self.numbering.wants_producer_id,
        )

    def _fail_expired(self, queue: PartitionQueue, batch: Batch, reason: str) -> None:
        self.statistics.expired_records += len(batch.records)
        self._fail_batch(batch, self._timed_out(f"{queue.topic.name}-{queue.index}", reason))

    def _timed_out(self, where: str, reason: str) -> KafkaError:
        text = f"{where}: not stored within {self.config.delivery_timeout_ms} ms: {reason}"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)

    def _fail(self, records: Sequence[Record], error: Exception) -> None:
        for record in records:
            if not record.receipt.done():
                record.receipt.set_exception(error)
        self._account(records)

    def _account(self, records: Sequence[Record]) -> None:
        self.outstanding -= len(records)
        self.statistics.records += len(records)
        self.buffered_bytes -= sum(size_of(one.key, one.value, one.headers) for one in records)
        self.on_settled(records)
