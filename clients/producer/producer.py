"""The public `Producer`: its settings, its lifecycle and the application's calls.

Order: records with the same key are stored in the order of their `send` calls, also while the topic is resized and
leaders fail, as long as the topic is ordered and idempotence is on: both are the default. Shaped like aiokafka's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Never, Self, Unpack

from anabranch.clients.clock import time_of_day_clock
from anabranch.clients.config import NetworkConfig, ProducerConfig, parse_servers
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.metadata import ClusterMetadata
from anabranch.clients.network import Network, make_rng
from anabranch.clients.producer.accumulator import Accumulator
from anabranch.clients.producer.audit_marks import AuditMarks
from anabranch.clients.producer.flow_control import Flushes
from anabranch.clients.producer.metrics import ProducerMetrics, Statistics
from anabranch.clients.producer.own_partitioner import OwnPartitioner
from anabranch.clients.producer.partitioner import ClusterView, Partitioner, PartitionerFunction
from anabranch.clients.producer.producer_record import Record, RecordMetadata
from anabranch.clients.producer.record_appender import Headers, RecordAppender
from anabranch.clients.producer.sender import ALL, Sender
from anabranch.clients.producer.transaction_task import TransactionScope, TransactionTask
from anabranch.clients.security import SecurityArguments
from anabranch.clients.security_config import make_security
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.suggestion import refuse_unknown, suggest_arguments
from anabranch.protocol.topic_partition import TopicPartition


@suggest_arguments
class Producer:
    """Sends records to a cluster; an async context manager.

        async with Producer("127.0.0.1:9092") as producer:
            await producer.send_and_wait("orders", b"value", key=b"customer-7")

    With a `transactional_id` every record belongs to a transaction: `async with producer.transaction(): ...`. Starting
    such a producer fences the one that used the id before, and finishes its open transaction. An `AbortableError` ends
    one transaction, a `FatalError` (`ProducerFenced` above all) ends the producer.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of them: brokers from which the others are learned.
        client_id: The name under which brokers log and count this client's requests.
        acks: "all": a record is stored when all in-sync replicas have it. 1: when the leader has. 0: when it is sent.
        enable_idempotence: Whether brokers drop what a retry sends twice. None: whenever acks="all".
        transactional_id: The name under which transactions survive this process; None for no transactions.
        transaction_timeout_ms: After this time the coordinator aborts a transaction that is still open.
        linger_ms: How long a batch that is not full waits for more records.
        batch_bytes: How large a batch grows before it is sent, compressed.
        buffer_bytes: What all unsent records may take in memory; `send` waits while it is full.
        compression_type: "gzip", "snappy", "lz4", "zstd", or None.
        partitioner: "linear", by the topic's generation, which keeps the order of keys across resizes. "modulo" hashes
            as Kafka does today, over all partitions and without generations: for topics that are not ordered, and to
            show what goes wrong. Or the application's own: a `Partitioner`, or a function like its method.
        audit: Add a header with this producer's identity and the record's sequence within its key, from which
            `anabranch audit` tells whether anything was lost, repeated or out of order. After an abort or a failed send
            the key gets another identity and counts from 0 again, so that what was not stored does not count as lost.
        refuse_below_min_insync_replicas: Let `send` raise NOT_ENOUGH_REPLICAS at once for a partition with fewer
            in-sync replicas than the topic demands, so that such a partition cannot fill the buffer. Whatever is set,
            records without a key go to partitions with enough of them when acks="all".
        request_timeout_ms: How long one request may take before it is sent again.
        delivery_timeout_ms: How long a record may take from `send` until it is stored, retries included.
        max_block_ms: How long `send` and the calls of a transaction may wait for metadata, room or the coordinator.
        metadata_max_age_ms: The age at which metadata is refreshed.
        clock_ms: The time for the timestamps of records, in milliseconds since 1970; the system's if None.
        rng: Where random choices come from, such as the partition of records without a key.
        **security: TLS and login, by aiokafka's names: `security_protocol`, `ssl_cafile`, `ssl_certfile`,
            `ssl_keyfile`, `sasl_mechanism`, `sasl_plain_username`, `sasl_plain_password`; all of them are
            `SecurityArguments`.

    Raises:
        ValueError: A setting is out of range, or excludes another one, as transactions do with acks=1.
    """

    _network: Network
    _sender: Sender
    _appender: RecordAppender
    _flushes: Flushes

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "127.0.0.1:9092",
        *,
        client_id: str = "anabranch-producer",
        acks: int | str = "all",
        enable_idempotence: bool | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60000,
        linger_ms: float = 5,
        batch_bytes: int = 16384,
        buffer_bytes: int = 32 * 1024 * 1024,
        compression_type: str | None = None,
        partitioner: str | Partitioner | PartitionerFunction = "linear",
        audit: bool = False,
        refuse_below_min_insync_replicas: bool = False,
        request_timeout_ms: int = 30000,
        delivery_timeout_ms: int = 120000,
        max_block_ms: int = 60000,
        metadata_max_age_ms: int = 300000,
        clock_ms: Callable[[], int] | None = None,
        rng: random.Random | None = None,
        **security: Unpack[SecurityArguments],
    ) -> None:
        self._config = ProducerConfig.make(
            acks=acks,
            enable_idempotence=enable_idempotence,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            compression_type=compression_type,
            partitioner=partitioner if isinstance(partitioner, str) else "linear",
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            audit=audit,
            refuse_below_min_insync_replicas=refuse_below_min_insync_replicas,
            request_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            max_block_ms=max_block_ms,
        )
        self._network_config = NetworkConfig(
            bootstrap_servers=parse_servers(bootstrap_servers),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            security=make_security(type(self), **security),
        )
        self._rng = make_rng(rng)
        marks = AuditMarks(self._rng)
        self._accumulator = Accumulator(self._config, self._network_config.retry_backoff, self._rng)
        self._accumulator.delivery.marks = marks if audit else None
        self._topics = self._accumulator.topics
        if not isinstance(partitioner, str):
            self._accumulator.partitioner = OwnPartitioner(
                partitioner,
                ClusterView(self._topics, lambda: self._network.metadata),
                waits_for_replicas=self._config.acks == ALL,
                batch_bytes=batch_bytes,
            )
        self._transaction_task: TransactionTask | None = None
        self._chosen_clock_ms = clock_ms
        self._state = "new"
        self._failure: Exception | None = None

    # lifecycle

    async def start(self) -> Self:
        """Connect to the cluster; with a `transactional_id`, fence its earlier producer. `async with` calls it.

        Returns:
            The producer itself.

        Raises:
            ConnectionError: No bootstrap server answers.
            RuntimeError: The producer was started before.
            KafkaError: The transaction coordinator refuses the transactional id.
        """
        if self._state != "new":
            raise RuntimeError(f"a producer can be started only once; this one is {self._state}")
        self._network = Network(self._network_config, self._rng)
        self._sender = Sender(self._config, self._network, self._accumulator, self._rng)
        if self._accumulator.numbering.transactions is not None:
            self._transaction_task = TransactionTask(
                self._accumulator.numbering.transactions,
                self._network,
                self._accumulator,
                self._sender,
                self._rng,
                max_block_ms=self._config.max_block_ms,
            )
        self._appender = RecordAppender(
            self._accumulator,
            self._network,
            self._sender,
            self._transaction_task,
            clock_ms=self._chosen_clock_ms or time_of_day_clock(),
            max_block_ms=self._config.max_block_ms,
            check_running=self._check_running,
        )
        self._flushes = Flushes(self._accumulator, self._sender.wake)
        self._sender.on_failure = self._on_failure
        self._sender.on_end = self._abandon
        self._accumulator.on_settled = self._on_settled
        try:
            await self._network.start()
            self._network.on_metadata(self._sender.adopt)
            self._sender.start()
            if self._transaction_task is not None:
                await self._transaction_task.start()
        except BaseException:
            await self._disconnect()
            raise
        self._state = "started"
        return self

    async def stop(self) -> None:
        """Send pending records, within the delivery timeout, and disconnect. Stopping twice is harmless.

        An open transaction is aborted. `async with` calls this at its end.
        """
        if self._state not in ("started", "failed"):
            return
        self._state = "stopping"
        try:
            if self._transaction_task is None:
                await self.flush()
        finally:
            self._state = "stopped"
            await self._disconnect()

    async def _disconnect(self) -> None:
        try:
            if self._transaction_task is not None:
                await self._transaction_task.stop()
        finally:
            await self._sender.stop()
            self._abandon()
            await self._network.close()

    def _abandon(self) -> None:
        """Fail unsent records, so that no caller waits for them for ever."""
        self._accumulator.delivery.abandon(KafkaError(ErrorCode.NETWORK_EXCEPTION, "the producer was stopped"))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # send

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        **unknown: Never,
    ) -> asyncio.Future[RecordMetadata]:
        """Accept a record, which is sent in the background. The order of records is that in which these calls return.

        Waits only while the topic or a chosen partition is unknown, or the buffer is full, at most `max_block_ms`.

        Args:
            topic: The topic's name.
            value: The record's value; None deletes the key in a compacted topic.
            key: Records with the same key go to the same partition and keep their order; None: any partition.
            partition: The partition, in place of the partitioner's choice.
            timestamp_ms: The record's time in milliseconds since 1970; now if None.
            headers: (name, value) pairs.

        Returns:
            A future with the partition, offset and timestamp at which the record was stored. It raises a `KafkaError`
            when the record could not be stored within `delivery_timeout_ms`, or the leader refused it.

        Raises:
            KafkaError: REQUEST_TIMED_OUT when the topic stayed unknown or the buffer full for `max_block_ms`;
                INVALID_PARTITIONS for a chosen partition that does not exist, or that a resize has merged away;
                NOT_ENOUGH_REPLICAS with `refuse_below_min_insync_replicas`.
            TypeError: The key, the value or a header is not bytes, or a number is not an integer.
            ValueError: The partition or the timestamp is negative.
            RuntimeError: The producer is not started, or has a transactional id and no transaction is open.
            FatalError: The producer has failed for good, such as `ProducerFenced`.
        """
        if unknown:
            refuse_unknown(Producer.send, unknown)
        if self._state != "started":
            self._check_running()
        queues, appender = self._topics.get(topic), self._appender
        if queues is not None and queues.live and not self._accumulator.full and not appender.queue.waiting:
            try:
                return appender.append(queues, value, key, partition, timestamp_ms, headers)
            except KafkaError as error:
                if error.code is not ErrorCode.INVALID_PARTITIONS:
                    raise
        return await appender.append_in_turn(topic, value, key, partition, timestamp_ms, headers)

    async def send_and_wait(
        self, topic: str, value: bytes | None = None, key: bytes | None = None, **options: Any
    ) -> RecordMetadata:
        """`send`, and wait until the record is stored. A loop of this call sends one record at a time.

        Args:
            topic: The topic's name.
            value: As for `send`.
            key: As for `send`.
            **options: The other arguments of `send`.

        Returns:
            The partition, offset and timestamp at which the record was stored.

        Raises:
            KafkaError: As `send`, and as the future that it returns.
        """
        return await (await self.send(topic, value, key, **options))

    async def flush(self) -> None:
        """Wait until every record accepted so far is stored or has failed, without waiting for batches to fill.

        It does not raise for those that have failed: their futures do.
        """
        if self._accumulator.outstanding:
            await self._flushes.wait()

    # transactions

    def transaction(self) -> TransactionScope:
        """A transaction as a block: begun at its start, committed at its end, aborted if an exception leaves it.

        Returns:
            The scope for `async with`.

        Raises:
            RuntimeError: The producer is not started, or has no `transactional_id`.
        """
        return TransactionScope(self._transactional())

    async def begin_transaction(self) -> None:
        """Begin a transaction: every record from now on belongs to it.

        Raises:
            RuntimeError: A transaction is open already, or the producer has no `transactional_id`.
            FatalError: The producer has failed for good.
        """
        await self._transactional().begin()

    async def commit_transaction(self) -> None:
        """Wait until what was sent is stored, and commit it.

        Raises:
            AbortableError: A record of the transaction could not be stored; abort, and begin it anew.
            FatalError: The producer has failed for good, such as `ProducerFenced`.
            KafkaError: REQUEST_TIMED_OUT after `max_block_ms`: the outcome is open, call again to learn it.
                NETWORK_EXCEPTION when another task stopped the producer: the outcome is open.
            RuntimeError: No transaction is open.
        """
        await self._transactional().commit()

    async def abort_transaction(self) -> None:
        """Give up everything since `begin_transaction`: consumers that read committed records never see it.

        Raises:
            FatalError: The producer has failed for good.
            KafkaError: REQUEST_TIMED_OUT after `max_block_ms`: call again.
            RuntimeError: No transaction is open.
        """
        await self._transactional().abort()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int], group: ConsumerGroupMetadata | str
    ) -> None:
        """Commit a consumer's offsets together with the transaction: both are committed, or neither.

        Args:
            offsets: Partition -> the offset of the next record to be read.
            group: `consumer.group_metadata()`, with which the coordinator refuses a member that was replaced; or a
                group's id, without that protection.

        Raises:
            AbortableError: The coordinator refuses the offsets, as those of a member that has left the group.
            FatalError: The producer has failed for good.
            RuntimeError: No transaction is open.
            TypeError: The offsets are not integers by `TopicPartition`.
            ValueError: An offset is negative.
        """
        member = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        await self._transactional().send_offsets(offsets, member)

    def _transactional(self) -> TransactionTask:
        self._check_running()
        if self._transaction_task is None:
            raise RuntimeError("transactions need a transactional_id")
        return self._transaction_task

    # state

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        """The partitions that records may be sent to now; those that a resize has sealed are not among them.

        Returns:
            Their indices, rising.

        Raises:
            KafkaError: REQUEST_TIMED_OUT when the topic stayed unknown for `max_block_ms`.
        """
        return (await self._appender.topic(topic)).live

    async def wait_for_partitions(self, topic: str, count: int) -> None:
        """Wait until records may be sent to at least `count` partitions of a topic that is growing.

        Raises:
            KafkaError: REQUEST_TIMED_OUT when the topic stayed unknown for `max_block_ms`.
            TimeoutError: The topic had fewer partitions for `max_block_ms`.
        """
        queues = await self._appender.topic(topic)
        await self._network.wait_for(lambda metadata: len(queues.live) >= count, timeout_ms=self._config.max_block_ms)

    def generation(self, topic: str) -> int:
        """Which resize of the topic records are partitioned by now: 0 before the first one.

        Returns:
            The generation; -1 if the topic is not ordered, or not known yet.
        """
        queues = self._topics.get(topic)
        return -1 if queues is None else queues.generation

    @property
    def statistics(self) -> Statistics:
        """Return the counters since the start."""
        return self._accumulator.statistics

    def metrics(self) -> ProducerMetrics:
        """How much was sent, and how long resizes have held records back.

        Returns:
            The values of this moment, since the start.
        """
        return self._accumulator.metrics()

    @property
    def metadata(self) -> ClusterMetadata:
        """Return the cluster's metadata: its nodes, and the topics that were sent to."""
        return self._network.metadata

    # internals

    def _check_running(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._state != "started":
            raise RuntimeError(f"the producer is {self._state}")

    def _on_failure(self, error: Exception) -> None:
        self._state = "failed"
        self._failure = error

    def _on_settled(self, records: Sequence[Record]) -> None:
        if self._appender.queue.waiting:
            self._appender.queue.admit()
        for flush in self._flushes.pending:
            flush.release(records)
        if self._transaction_task is not None:
            self._transaction_task.wake()
