"""The share partitions that this broker leads: loads them, reads for members, and stores acknowledgements.

A partition is loaded when the first member of a group reads it: the share coordinator has the group's state, or the
group's settings determine the start. Acknowledgements are stored one at a time per partition and group, and take effect
afterwards. If a new leader or a new incarnation of the group rejects one, the partition is dropped here, and the next
request gets the error. One timer handles expired locks.

Source: KIP-932; Kafka's `SharePartitionManager`, `SharePartition` (`maybeInitialize`), `DelayedShareFetch`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.effective_config import EARLIEST
from anabranch.broker.coordinators.runtime.coordinator_tasks import CoordinatorTasks, CoordinatorTimer
from anabranch.broker.coordinators.share_partitions.in_flight import Acquired, StateBatch
from anabranch.broker.coordinators.share_partitions.share_partition import Acknowledgement, SharePartition
from anabranch.broker.coordinators.share_partitions.share_settings import ShareSettings
from anabranch.broker.coordinators.share_partitions.share_state import FRESH, ShareKey
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import Buffer, iter_batches

if TYPE_CHECKING:
    from anabranch.broker.coordinators.share_partitions.share_persister import SharePersister
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.replication.replica_manager import ReplicaManager
    from anabranch.broker.storage.aborted_transactions import AbortedTransaction

log: Final = logging.getLogger(__name__)

OVER: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""Errors that mean that this broker no longer serves the group in the partition."""


def aborted_batches(records: Buffer, aborted: Iterable[AbortedTransaction]) -> Iterator[tuple[int, int]]:
    """Yield the first and last offsets of batches of aborted transactions."""
    to_come = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    producers: set[int] = set()
    for _, header in iter_batches(records):
        while to_come and to_come[-1].first_offset <= header.base_offset:
            producers.add(to_come.pop().producer_id)
        if header.is_control:
            producers.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in producers:
            yield header.base_offset, header.next_offset - 1


def batches_between(records: Buffer, first: int, last: int) -> Buffer:
    """Return the batches from the one with the first offset to the one with the last."""
    begin, end = len(records), 0
    for at, header in iter_batches(records):
        if header.next_offset > first and header.base_offset <= last:
            begin, end = min(begin, at), max(end, at + header.size_bytes)
    return records[begin:end]


class SharedPartition:
    """One partition that this broker leads, shared by one group."""

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        leader_epoch: int,
        state_epoch: int,
        shared: SharePartition,
        settings: ShareSettings,
    ) -> None:
        """`leader_epoch` is the epoch of the read from the share coordinator, which fenced earlier leaders."""
        self.key = key
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state_epoch = state_epoch
        self.shared = shared
        self.settings = settings
        self.turn = asyncio.Lock()
        """Changes are stored in order."""

    @property
    def limit(self) -> int:
        """The offset before which members stop: the last stable offset or the high watermark."""
        partition = self.partition
        return partition.last_stable_offset if self.settings.read_committed else partition.high_watermark

    @property
    def has_acquirable_records(self) -> bool:
        """Whether a member could acquire records."""
        return not self.shared.full and self.shared.next_fetch_offset < self.limit


class SharedPartitions:
    """All share partitions that this broker leads."""

    def __init__(
        self,
        replicas: ReplicaManager,
        persister: SharePersister,
        *,
        settings: Callable[[str], ShareSettings],
        is_read: Callable[[str], bool],
        clock_ms: Callable[[], int],
        date_ms: Callable[[], int],
    ) -> None:
        """`settings` returns a group's settings; `is_read` returns whether any of its members has a session."""
        self._is_read = is_read
        self._replicas = replicas
        self._persister = persister
        self._settings = settings
        self._clock_ms = clock_ms
        self._date_ms = date_ms
        self._background = CoordinatorTasks("shared partitions")
        self._partitions: dict[ShareKey, asyncio.Future[SharedPartition]] = {}
        self._locks: CoordinatorTimer[ShareKey] = CoordinatorTimer(clock_ms, self._expire)
        self._locks.start()
        replicas.on_resign(self._on_leadership_lost)

    async def stop(self) -> None:
        """Stop serving; the next leader delivers what members hold again."""
        self._locks.stop()
        await self._background.stop()

    def look_up(self, key: ShareKey, topic: str) -> SharedPartition | None:
        """Return a partition for a group if it is loaded. Raises NOT_LEADER_OR_FOLLOWER and others."""
        partition = self._replicas.leader_of(topic, key.partition)
        known = self._partitions.get(key)
        if known is None or not known.done():
            return None
        found = known.result()
        if found.partition is not partition or found.leader_epoch != partition.leader_epoch:
            self.forget(key)
            return None
        found.settings = self._settings(key.group)  # they may have changed
        return found

    async def find(self, key: ShareKey, topic: str) -> SharedPartition:
        """Return a partition for a group, loading it if necessary. Raises NOT_LEADER_OR_FOLLOWER and others."""
        found = self.look_up(key, topic)
        if found is not None:
            return found
        known = self._partitions.get(key)
        if known is None:
            known = self._partitions[key] = asyncio.get_running_loop().create_future()
            self._background.spawn(self._bring_up(key, self._replicas.leader_of(topic, key.partition), known))
        return await asyncio.shield(known)

    def load(self, key: ShareKey, topic: str) -> asyncio.Future[SharedPartition]:
        """Find a partition in the background. One that is loaded is read again if its state was replaced since."""
        result: asyncio.Future[SharedPartition] = asyncio.get_running_loop().create_future()
        self._background.spawn(self._load(key, topic, result))
        return result

    async def _load(self, key: ShareKey, topic: str, result: asyncio.Future[SharedPartition]) -> None:
        try:
            await self.check_incarnation(key)
            result.set_result(await self.find(key, topic))
        except KafkaError as error:
            result.set_exception(error)
            result.exception()  # marks the error as retrieved; the request may not have waited for it
        except BaseException:
            result.cancel()
            raise

    async def check_incarnation(self, key: ShareKey) -> None:
        """Drop a loaded partition if the group's offsets were altered or deleted since. Raises KafkaError.

        A session that has not ended, such as a frozen member's, may have kept it. (Kafka keeps it until a write fails.)
        """
        one = self.get_loaded(key)
        if one is None:
            return
        stored = await self._persister.summary(key)
        replaced = (stored.state_epoch, stored.leader_epoch) != (one.state_epoch, one.leader_epoch)
        if replaced and self.get_loaded(key) is one:
            self.forget(key)

    def get_loaded(self, key: ShareKey) -> SharedPartition | None:
        """Return a partition that is loaded, or None."""
        future = self._partitions.get(key)
        return future.result() if future is not None and future.done() and future.exception() is None else None

    def served_keys(self) -> Iterable[ShareKey]:
        """Return the keys of the partitions that are served."""
        return self._partitions.keys()

    def forget(self, key: ShareKey) -> None:
        """Drop a partition; the next request loads it again."""
        self._partitions.pop(key, None)
        self._locks.forget(key)

    async def _bring_up(self, key: ShareKey, partition: Partition, result: asyncio.Future[SharedPartition]) -> None:
        leader_epoch = partition.leader_epoch
        try:
            stored = await self._persister.read(key, leader_epoch)
            settings = self._settings(key.group)
            start = stored.start_offset
            if start == FRESH:
                start = await self._begin(key, partition, leader_epoch, stored.state_epoch, settings)
            if partition.leader_epoch != leader_epoch:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader epoch has changed")
            shared = SharePartition(
                start,
                stored.batches,
                delivery_limit=settings.delivery_limit,
                max_locks=settings.max_locks,
                isolates=settings.isolates_failing,
            )
            shared.move_start(partition.log.log_start_offset)
        except KafkaError as error:
            if self._partitions.get(key) is result:
                self.forget(key)
            result.set_exception(error)
            result.exception()  # marks the error as retrieved; there may be no waiting request
            return
        except BaseException:
            result.cancel()
            raise
        log.info(
            "%s-%d: share group %s starts at offset %d",
            partition.topic,
            partition.index,
            key.group,
            shared.start_offset,
        )
        result.set_result(SharedPartition(key, partition, leader_epoch, stored.state_epoch, shared, settings))

    async def _begin(
        self, key: ShareKey, partition: Partition, leader_epoch: int, state_epoch: int, settings: ShareSettings
    ) -> int:
        """Store the start of a group at once, so that the next leader starts at the same offset.

        Kafka stores it with the first acknowledgement, and loses what was delivered before if its leader fails earlier.
        """
        start = self._beginning(partition, settings)
        await self._persister.write(
            key,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            batches=[],
            complete_count=0,
        )
        return start

    def _beginning(self, partition: Partition, settings: ShareSettings) -> int:
        if settings.offset_reset == EARLIEST:
            return partition.log.log_start_offset
        if settings.offset_reset_ms is not None:
            try:
                found = partition.log.offset_for_timestamp(self._date_ms() - settings.offset_reset_ms)
            except OSError as reason:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition!r}: {reason}") from reason
            if found is not None:
                return found.offset
        return partition.high_watermark

    # --- members -------------------------------------------------------------------------------------------------

    def acquire(
        self, one: SharedPartition, member: str, *, max_records: int, batch_size: int, max_bytes: int, strict: bool
    ) -> tuple[Buffer, list[Acquired]]:
        """Read for a member and acquire what it gets. Raises KafkaError.

        If the partition was loaded again while the member waited, or the next request will load it again, the member
        gets nothing: its locks would have no effect.
        """
        if self.get_loaded(one.key) is not one or one.leader_epoch != one.partition.leader_epoch:
            return b"", []
        shared, log_ = one.shared, one.partition.log
        shared.move_start(log_.log_start_offset)
        limit = one.limit
        offset = shared.next_fetch_offset
        if shared.full or offset >= limit:
            return b"", []
        records = log_.read(offset, max_bytes, limit_offset=limit, min_one_batch=True)
        extents = [(header.base_offset, header.next_offset - 1) for _, header in iter_batches(records)]
        locked_until_ms = self._clock_ms() + one.settings.lock_duration_ms
        acquired = shared.acquire(
            member,
            extents,
            max_records=max_records,
            batch_size=batch_size,
            strict=strict,
            locked_until_ms=locked_until_ms,
        )
        if acquired and one.settings.read_committed:
            acquired = self._without_aborted(one, records, offset, acquired)
        if acquired:
            self._locks.set(one.key, locked_until_ms)
        return (batches_between(records, acquired[0].first, acquired[-1].last), acquired) if acquired else (b"", [])

    def _without_aborted(
        self, one: SharedPartition, records: Buffer, offset: int, acquired: list[Acquired]
    ) -> list[Acquired]:
        """Archive the records of aborted transactions and return the rest of what was acquired."""
        for first, last in aborted_batches(records, one.partition.log.producers.aborted_in(records, offset)):
            one.shared.archive(first, last)
        return one.shared.still_acquired(acquired)

    async def acknowledge(self, one: SharedPartition, member: str, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Store a member's acknowledgements. Raises KafkaError without any change."""
        renewed_until_ms = self._clock_ms() + one.settings.lock_duration_ms
        batches = one.shared.acknowledge(member, acknowledgements, renewed_until_ms=renewed_until_ms)
        self._locks.set(one.key, one.shared.next_lock_end_ms)
        await self._store(one, batches)

    def release(self, group: str, member: str) -> None:
        """Release what a member held. Without sessions left here, the group's partitions are dropped.

        So later members see changes to the group that were made while it had no members.
        """
        for key in list(self._partitions):
            if key.group == group and (one := self.get_loaded(key)) is not None:
                self._background.spawn(self._release(one, one.shared.release(member)))

    async def _release(self, one: SharedPartition, batches: list[StateBatch]) -> None:
        await self._store_if_possible(one, batches)
        self._forget_unread(one)

    def _forget_unread(self, one: SharedPartition) -> None:
        """Drop an unread partition once all changes are stored, so that a new load cannot miss a change."""
        if not self._is_read(one.key.group) and not one.shared.changing and self.get_loaded(one.key) is one:
            self.forget(one.key)

    def _expire(self, key: ShareKey, now_ms: int) -> None:
        one = self.get_loaded(key)
        if one is None:
            return
        if batches := one.shared.expire(now_ms):
            log.info(
                "acquisition locks on %s-%d of %s expired: %s", one.partition.topic, key.partition, key.group, batches
            )
            self._background.spawn(self._store_if_possible(one, batches))
        self._locks.set(key, one.shared.next_lock_end_ms)

    async def _store_if_possible(self, one: SharedPartition, batches: list[StateBatch]) -> None:
        try:
            await self._store(one, batches)
        except KafkaError as error:
            log.info("%s: cannot store the state: %s", one.key, error)

    async def _store(self, one: SharedPartition, batches: list[StateBatch]) -> None:
        """Store a change and apply it. Raises KafkaError without any change."""
        if not batches:
            return
        try:
            async with one.turn:
                start, complete_count = one.shared.standing_after(batches)
                await self._persister.write(
                    one.key,
                    state_epoch=one.state_epoch,
                    leader_epoch=one.leader_epoch,
                    start_offset=start,
                    batches=batches,
                    complete_count=complete_count,
                )
        except BaseException as error:
            one.shared.roll_back(batches)
            self._locks.set(one.key, one.shared.next_lock_end_ms)
            if isinstance(error, KafkaError) and error.code in OVER and self.get_loaded(one.key) is one:
                log.info("%s: no longer served by this broker: %s", one.key, error)
                self.forget(one.key)
            raise
        else:
            one.shared.complete(batches)
            self._replicas.rooms.fetches.check(one.partition)
        finally:
            self._forget_unread(one)

    def _on_leadership_lost(self, topic: str, index: int) -> None:
        for key in [key for key in self._partitions if key.partition == index]:
            one = self.get_loaded(key)
            if one is not None and one.partition.topic == topic:
                self.forget(key)
