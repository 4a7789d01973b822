"""The journal of a coordinator: appends to its internal topic, and replays it.

An append returns when all in-sync replicas have the records; its errors are translated to the client's. `replay`
returns the entries of a partition, oldest first: puts and tombstones, staged puts of transactions, and the markers that
settle them. It ends when everything that it returned is replicated. Otherwise the next leader might lack a record that
this coordinator has acted on: two assignments of one generation, or a lost decision. Kafka does not wait for that.

Source: kafka.coordinator.group.GroupMetadataManager (storeOffsets, storeGroup, doLoadGroupsAndOffsets) and
kafka.coordinator.transaction.TransactionStateManager (appendTransactionToLog, loadTransactionMetadata).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.replication.partition import Partition, Role
from anabranch.broker.replication.purgatory import DelayedProduce
from anabranch.broker.replication.replica_manager import ALL_REPLICAS
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC, decode_key
from anabranch.protocol.records.batch import NO_PRODUCER_ID, Buffer, iter_batches
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.control import ControlType, read_control
from anabranch.protocol.records.record import iter_records
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.replication.replica_manager import ReplicaManager
    from anabranch.broker.storage.producer_state import Verification

log: Final = logging.getLogger(__name__)

Records = Iterable[tuple[bytes, bytes | None]] | bytes
"""Keys and values, or the batch of them that `Journal.build` has built; a value of None deletes."""
ReadKey = Callable[[bytes], Any]
"""Decodes a record's key, which has its group or transactional id; None for kinds of newer software."""
LOAD_BYTES: Final = 262144
"""The size of one read during a load: a few thousand records, or one batch. Kafka's `offsets.load.buffer.size` is 5
MB."""

_NOT_STORED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
COMMIT_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = _NOT_STORED | {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""The errors of OffsetCommit by append error; other errors stay unchanged."""
GROUP_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = _NOT_STORED | {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The errors of classic members by append error, if an assignment could not be stored."""
CONSUMER_GROUP_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = _NOT_STORED | {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The errors of KIP-848 members and of deletions by append error; the client finds the coordinator and retries."""


@value
class JournalRecord:
    """One record; a `value` of None deletes. `producer_id` is -1 outside of transactions."""

    key: Any
    """The key, decoded by the topic's `decode_key`."""
    value: bytes | None
    offset: int
    producer_id: int = NO_PRODUCER_ID


@value
class TransactionEnd:
    """The end of a producer's transaction."""

    producer_id: int
    commit: bool


@value
class TransactionPart:
    """The producer's transaction that records belong to, verified by its coordinator."""

    producer: tuple[int, int]
    """Producer id and epoch."""
    verification: Verification | None
    appended: Callable[[int], None]
    """Called with the first record's offset when the records are in the log."""


class Journal:
    """Append to and read the partitions of one internal topic that this broker leads."""

    def __init__(
        self,
        replicas: ReplicaManager,
        *,
        timeout_ms: int,
        clock_ms: Callable[[], int],
        topic: str = CONSUMER_OFFSETS_TOPIC,
        read_key: ReadKey = decode_key,
    ) -> None:
        self.topic = topic
        self._replicas = replicas
        self._timeout_ms = timeout_ms
        self._clock_ms = clock_ms
        self._read_key = read_key

    async def build(
        self,
        records: Iterable[tuple[bytes, bytes | None]],
        turns: YieldBudget,
        producer: tuple[int, int] | None = None,
    ) -> bytes:
        """Build the batch of many records before they are appended, while other requests run.

        `producer` is the id and epoch of the producer if the records are part of its transaction.
        """
        builder, now_ms = BatchBuilder(limit_bytes=_NO_LIMIT), self._clock_ms()
        for key, content in records:
            builder.append(key, content, timestamp_ms=now_ms)
            if turns.is_spent():
                await asyncio.sleep(0)
        return _built(builder, producer)

    async def append(
        self,
        partition: int,
        records: Records,
        errors: Mapping[ErrorCode, ErrorCode],
        *,
        timeout_ms: int | None = None,
        transaction: TransactionPart | None = None,
        appended: Callable[[int], None] | None = None,
    ) -> int:
        """Append records as one batch, wait until all in-sync replicas have it, and return the first offset.

        The records are in the log, or rejected, before the coordinator does anything else; `appended(first offset)` is
        then called. Those of a `transaction` take effect when it ends. Raises KafkaError with a code from `errors`.
        """
        if isinstance(records, bytes):
            batch = records
        else:
            builder, now_ms = BatchBuilder(limit_bytes=_NO_LIMIT), self._clock_ms()
            for key, content in records:
                builder.append(key, content, timestamp_ms=now_ms)
            batch = _built(builder, None if transaction is None else transaction.producer)
        try:
            return await self._write(
                partition,
                batch,
                timeout_ms=self._timeout_ms if timeout_ms is None else timeout_ms,
                verification=None if transaction is None else transaction.verification,
                appended=appended if transaction is None else transaction.appended,
            )
        except KafkaError as error:
            raise KafkaError(errors.get(error.code, error.code), error.message) from error

    async def _write(
        self,
        partition: int,
        batch: bytes,
        *,
        timeout_ms: int,
        verification: Verification | None,
        appended: Callable[[int], None] | None,
    ) -> int:
        """Append a batch as this broker itself, wait for the replicas, and return its first offset."""
        replica = self._replicas.leader_of(self.topic, partition)
        info = self._replicas.append_local(
            replica, batch, acks=ALL_REPLICAS, generation=None, origin="coordinator", verification=verification
        )
        if appended is not None:
            appended(info.first_offset)
        wait = DelayedProduce(replica, info.last_offset + 1)
        await self._replicas.rooms.wait_replicated([wait], timeout_ms)
        if wait.code is not ErrorCode.NONE:
            raise KafkaError(wait.code or ErrorCode.REQUEST_TIMED_OUT, f"{self.topic}-{partition}: not replicated")
        return info.first_offset

    async def wait_replicated(self, partition: int, offset: int, errors: Mapping[ErrorCode, ErrorCode]) -> None:
        """Wait until all in-sync replicas have everything below `offset`. Raises KafkaError like `append`."""
        try:
            if self._replicas.leader_of(self.topic, partition).high_watermark >= offset:
                return
            async with asyncio.timeout(self._timeout_ms / 1000):
                await self._wait_committed(partition, offset)
        except TimeoutError:
            late = ErrorCode.REQUEST_TIMED_OUT
            raise KafkaError(errors.get(late, late), f"{self.topic}-{partition}: not replicated") from None
        except KafkaError as error:
            raise KafkaError(errors.get(error.code, error.code), error.message) from error

    async def _wait_committed(self, partition: int, offset: int) -> None:
        """Wait without a timeout until all below `offset` is replicated. Raises KafkaError if another broker leads."""

        def ready(changed: Partition) -> bool:
            return changed.role is not Role.LEADER or changed.high_watermark >= offset

        rooms, timeout_ms = self._replicas.rooms, self._replicas.settings.request_timeout_ms
        while not ready(replica := self._replicas.leader_of(self.topic, partition)):
            await rooms.wait(rooms.produces, (replica,), timeout_ms, ready)

    def first_offset(self, partition: int) -> int:
        """Return the log start offset. Raises KafkaError if this broker does not lead the partition."""
        return self._replicas.leader_of(self.topic, partition).log.log_start_offset

    def end_offset(self, partition: int) -> int:
        """Return the offset of the next record. Raises KafkaError if this broker does not lead the partition."""
        return self._replicas.leader_of(self.topic, partition).log.log_end_offset

    def read(self, partition: int, offset: int) -> tuple[bytes, int]:
        """Return the next batches of a partition and the offset after them; an unchanged offset means the end."""
        stored = self._replicas.leader_of(self.topic, partition).log
        data = bytes(stored.read(offset, LOAD_BYTES, limit_offset=stored.log_end_offset, min_one_batch=True))
        for _, header in iter_batches(data):
            offset = max(offset, header.next_offset)
        return data, offset

    async def replay(self, partition: int, apply: Callable[[JournalRecord | TransactionEnd], None]) -> int:
        """Apply all entries of a partition, wait until they are replicated, and return the end offset.

        Markers written during the wait are applied, too. Nothing is written between the end of the replay and the
        caller's next steps, up to its next await. Raises KafkaError.
        """
        offset, turns = self.first_offset(partition), YieldBudget()
        while True:
            data, following = self.read(partition, offset)
            for entry in entries_of(data, offset, self._read_key):
                try:
                    apply(entry)
                except DecodeError as reason:
                    log.error("%s-%d: skipping an unreadable record: %s: %r", self.topic, partition, reason, entry)
                if turns.is_spent():
                    await asyncio.sleep(0)
            if following != offset:
                offset = following
                await asyncio.sleep(0)
            elif self._replicas.leader_of(self.topic, partition).high_watermark < offset:
                await self._wait_committed(partition, offset)
            else:
                return offset


_NO_LIMIT: Final = 2**31 - 1


def _built(builder: BatchBuilder, producer: tuple[int, int] | None) -> bytes:
    return builder.build() if producer is None else builder.build(*producer, transactional=True)


def entries_of(
    data: Buffer, first_offset: int = 0, read_key: ReadKey = decode_key
) -> Iterator[JournalRecord | TransactionEnd]:
    """Decode the entries of batches, in order. Records of unknown, newer kinds are skipped.

    Entries that cannot be decoded are skipped, too, so that the coordinator can still serve its groups.
    """
    for position, header in iter_batches(data):
        offset = header.base_offset
        try:
            if header.is_control:
                control = read_control(data, position)
                if control.ends_transaction:
                    yield TransactionEnd(header.producer_id, control.type is ControlType.COMMIT)
                continue
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            for record in iter_records(data, position):
                offset = record.offset
                key = None if record.key is None or offset < first_offset else read_key(record.key)
                if key is not None:
                    yield JournalRecord(key, record.value, offset, producer_id)
        except DecodeError as reason:
            log.error("skipping the batch at offset %d from offset %d on: %s", header.base_offset, offset, reason)
