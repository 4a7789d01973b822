"""Tracks each batch from its first transmission until its records are stored or failed.

An outcome is a response (`complete`), a lost transmission (`on_lost`), or the end of the delivery timeout (`expire`). A
batch is then stored, sent again later, split in two (KIP-126), partitioned again (`switch`), or failed.

Sequence numbers are per partition and assigned at the first transmission. A batch that the leader never appended
returns them; a batch given up after a transmission leaves a gap, and the partition starts a new producer epoch, which
the leader tracks per partition too. Pure. Source: KIP-98, KIP-360, Kafka's `Sender.completeBatch` and
`TransactionManager`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from anabranch.clients.backoff import Backoff
from anabranch.clients.config import ProducerConfig
from anabranch.clients.producer import switch
from anabranch.clients.producer.audit_marks import AuditMarks
from anabranch.clients.producer.delay_reasons import delay_reason, held_back_reason
from anabranch.clients.producer.metrics import Statistics
from anabranch.clients.producer.producer_identity import Numbering
from anabranch.clients.producer.producer_record import Record
from anabranch.clients.producer.queues import NO_GENERATION, Batch, PartitionQueue, TopicQueues
from anabranch.clients.producer.transaction_errors import TransactionAborted
from anabranch.protocol.errors import ErrorCode, KafkaError

_OUT_OF_SEQUENCE: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
_STORED: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class BatchDelivery:
    """The transmitted batches of one producer, and the failures of all its batches.

    `account` takes records that are stored or failed. `settle` places the returned records of a topic again.
    """

    def __init__(
        self,
        config: ProducerConfig,
        backoff: Backoff,
        rng: random.Random,
        numbering: Numbering,
        statistics: Statistics,
        topics: Mapping[str, TopicQueues],
        *,
        account: Callable[[Sequence[Record]], None],
        settle: Callable[[TopicQueues], None],
    ) -> None:
        self.marks: AuditMarks | None = None
        self.obstacle: Callable[[str, int], str] = lambda topic, index: ""
        """(topic, partition) -> why its leader cannot be reached, for the errors of expired records."""
        self._config = config
        self._backoff = backoff
        self._rng = rng
        self._numbering = numbering
        self._statistics = statistics
        self._topics = topics
        self._account = account
        self._settle = settle

    def transmit(self, queue: PartitionQueue, batch: Batch) -> None:
        """Note that the sender transmits a batch now: for the first time, or again."""
        if batch.attempts == 0:
            queue.waiting.popleft()
            if self._config.enable_idempotence:
                queue.number(batch)
            queue.unresolved.append(batch)
            batch.ordinal = queue.transmitted
            queue.transmitted += 1
            self._statistics.batches += 1
        else:
            self._statistics.retries += 1
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
            self._statistics.acknowledged_records += len(batch.records)
            self._on_resolved(queue, batch.records)
        elif code == ErrorCode.INVALID_PARTITION_METADATA and switch.refusal_is_final(batch, generation):
            if switch.outcome_is_lost(batch, first_generation):
                self._fail_unknown(batch)
            else:
                self._statistics.refused_batches += 1
                switch.refuse(batch, generation)
                self._settle(queue.topic)
        elif self._config.enable_idempotence and code in _OUT_OF_SEQUENCE:
            # Behind an older unresolved batch that batch causes the error, and its retry resolves it.
            head = batch is queue.unresolved[0]
            if head and self._numbering.transactions is not None:
                self._fail_refused(batch, code, message)
            else:
                queue.restart = queue.restart or head
                self._later(batch, now)
        elif code == ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1 and not batch.doubtful:
            queue.split(batch)
            self._statistics.split_batches += 1
        elif batch.of_deleted_topic and switch.is_left_behind(batch, code):
            self._statistics.refused_batches += 1
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

    def _later(self, batch: Batch, now: float) -> None:
        batch.retry_at = now + self._backoff.wait_ms(batch.attempts, self._rng) / 1000

    def _on_resolved(self, queue: PartitionQueue, records: Sequence[Record]) -> None:
        self._account(records)
        topic = queue.topic
        if topic.closed or topic.returned:
            self._settle(topic)

    # expiry

    def deadline(self, queue: PartitionQueue) -> float:
        """Return when the oldest batch of a partition expires."""
        oldest = queue.unresolved[0] if queue.unresolved else queue.waiting[0]
        return self.give_up_at(oldest.created_at)

    def give_up_at(self, created_at: float) -> float:
        """Return when a record or batch expires.

        Computed only here: a different rounding would wake the sender too early.
        """
        return created_at + self._config.delivery_timeout_ms / 1000

    def expire(self, active: Iterable[PartitionQueue], now: float) -> None:
        """Fail records older than the delivery timeout (K510); whether they were stored may remain unknown."""
        for queue in list(active):
            for batch in [one for one in queue.unresolved if self.give_up_at(one.created_at) <= now]:
                reason = self.why_late(queue, batch, now)
                self._give_up(batch)
                self._fail_expired(queue, batch, reason)
            while queue.waiting and self.give_up_at(queue.waiting[0].created_at) <= now:
                reason = self.why_late(queue, queue.waiting[0], now)
                self._fail_expired(queue, queue.waiting.popleft(), reason)
        for topic in self._topics.values():
            if topic.returned and self.give_up_at(min(created_at for _, created_at in topic.returned)) <= now:
                late = [record for record, created_at in topic.returned if self.give_up_at(created_at) <= now]
                topic.returned = [entry for entry in topic.returned if self.give_up_at(entry[1]) > now]
                error = self._timed_out(topic.name, held_back_reason(topic))
                self.fail(topic, late, error)
                self._statistics.expired_records += len(late)
        self.drop_doomed()

    def why_late(self, queue: PartitionQueue, batch: Batch, now: float) -> str:
        """Describe what a batch waits for."""
        return delay_reason(
            queue,
            batch,
            now,
            obstacle=self.obstacle(queue.topic.name, queue.index),
            identified=batch.producer_id >= 0 or not self._numbering.wants_producer_id,
        )

    def _fail_expired(self, queue: PartitionQueue, batch: Batch, reason: str) -> None:
        self._statistics.expired_records += len(batch.records)
        self._fail_batch(batch, self._timed_out(f"{queue.topic.name}-{queue.index}", reason))

    def _timed_out(self, where: str, reason: str) -> KafkaError:
        text = f"{where}: not stored within {self._config.delivery_timeout_ms} ms: {reason}"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)

    # failures

    def drop_doomed(self) -> None:
        """Fail batches that are not in flight if their transaction cannot be committed, or is being aborted."""
        transactions = self._numbering.transactions
        if transactions is None or not transactions.doomed:
            return
        error = transactions.failure or TransactionAborted(ErrorCode.OPERATION_NOT_ATTEMPTED, "the producer is closed")
        for topic in self._topics.values():
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
        for topic in self._topics.values():
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

    def fail(self, topic: TopicQueues, records: Sequence[Record], error: KafkaError) -> None:
        """Fail records that are in no batch."""
        self._missing(topic, records, error)
        self._fail(records, error)

    def _fail_refused(self, batch: Batch, code: ErrorCode, message: str | None) -> None:
        queue = batch.queue
        youngest = batch is queue.unresolved[-1]
        queue.unresolved.remove(batch)
        if youngest and not batch.doubtful and code != ErrorCode.UNKNOWN_SERVER_ERROR:
            queue.rewind(batch)
        else:
            # Later: batches that may be in the log keep their numbers, by which the leader recognises them.
            queue.give_up = self._config.enable_idempotence
        self._fail_batch(batch, KafkaError(code, message or f"{queue.topic.name}-{queue.index}"))

    def _fail_unknown(self, batch: Batch) -> None:
        """Fail a batch that a removed partition may have stored: its records may have been read."""
        self._give_up(batch)
        where = f"{batch.queue.topic.name}-{batch.queue.index}"
        text = f"{where} was merged away and removed before it responded: nobody can tell whether it stored the records"
        self._fail_batch(batch, KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))

    def _fail_batch(self, batch: Batch, error: KafkaError) -> None:
        batch.fail(error)
        self._missing(batch.queue.topic, batch.records, error)
        self._on_resolved(batch.queue, batch.records)

    def _give_up(self, batch: Batch) -> None:
        """Wait no longer for the outcome of a transmitted batch."""
        batch.queue.unresolved.remove(batch)
        batch.queue.give_up = self._config.enable_idempotence

    def _missing(self, topic: TopicQueues, records: Sequence[Record], error: KafkaError) -> None:
        """Note records that are not stored, or have an unknown outcome: their transaction must not be committed."""
        if self.marks is not None:
            self.marks.missing(topic.name, records)
        if self._numbering.transactions is not None:
            self._numbering.transactions.batch_failed(error.code, error.message)

    def _fail(self, records: Sequence[Record], error: Exception) -> None:
        for record in records:
            if not record.receipt.done():
                record.receipt.set_exception(error)
        self._account(records)
