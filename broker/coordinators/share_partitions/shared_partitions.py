"""The shared partitions that this broker leads: brings them up, reads for members, stores what they say.

A partition is brought up when the first member of a group asks for it: the share coordinator says where the group
stands, or the group's settings say where it begins. What members say is stored, one change at a time for each partition
and group, and only then holds; when it cannot be stored because another leader or another life of the group has begun,
the partition is forgotten, and whoever asks next finds out. Locks that run out are the business of one timer.

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
"""What says that another broker, or nobody, is to serve the group here now."""


def aborted_batches(records: Buffer, aborted: Iterable[AbortedTransaction]) -> Iterator[tuple[int, int]]:
    """The first and last offsets of the batches that belong to aborted transactions."""
    to_come = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    producers: set[int] = set()
    for _, header in iter_batches(records):
        while to_come and to_come[-1].first_offset <= header.base_offset:
            producers.add(to_come.pop().producer_id)
        if header.is_control:
            producers.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in producers:
            yield header.base_offset, header.next_offset - 1


def spanned(records: Buffer, first: int, last: int) -> Buffer:
    """The batches from the one that has one offset to the one that has the other."""
    begin, end = len(records), 0
    for at, header in iter_batches(records):
        if header.next_offset > first and header.base_offset <= last:
            begin, end = min(begin, at), max(end, at + header.size_bytes)
    return records[begin:end]


class SharedPartition:
    """One partition that this broker leads, as one group shares it."""

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        leader_epoch: int,
        state_epoch: int,
        shared: SharePartition,
        settings: ShareSettings,
    ) -> None:
        """`leader_epoch` is the one in which the share coordinator was asked: it has fenced those before it."""
        self.key = key
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state_epoch = state_epoch
        self.shared = shared
        self.settings = settings
        self.turn = asyncio.Lock()
        """Changes are stored in their order."""

    @property
    def limit(self) -> int:
        """The offset before which members have to stop."""
        partition = self.partition
        return partition.last_stable_offset if self.settings.read_committed else partition.high_watermark

    @property
    def has_news(self) -> bool:
        """Whether a member would be handed something."""
        return not self.shared.full and self.shared.next_fetch_offset < self.limit


class SharedPartitions:
    """All of them on this broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        persister: SharePersister,
        *,
        settings: Callable[[str], ShareSettings],
        is_read: Callable[[str], bool],
        clock_ms: Callable[[], int],
    ) -> None:
        """`settings` are a group's; `is_read` tells whether any of its members has a session here."""
        self._is_read = is_read
        self._replicas = replicas
        self._persister = persister
        self._settings = settings
        self._clock_ms = clock_ms
        self._background = CoordinatorTasks("shared partitions")
        self._partitions: dict[ShareKey, asyncio.Future[SharedPartition]] = {}
        self._locks: CoordinatorTimer[ShareKey] = CoordinatorTimer(clock_ms, self._expire)
        self._locks.start()
        replicas.on_resign(self._resigned)

    async def stop(self) -> None:
        """Serve no group any more; what members hold is handed out again by the next leader."""
        self._locks.stop()
        await self._background.stop()

    async def find(self, key: ShareKey, topic: str) -> SharedPartition:
        """A partition for a group, brought up if need be. Raises NOT_LEADER_OR_FOLLOWER and others."""
        partition = self._replicas.leader_of(topic, key.partition)
        known = self._partitions.get(key)
        if known is not None and known.done():
            found = known.result()
            if found.partition is partition and found.leader_epoch == partition.leader_epoch:
                found.settings = self._settings(key.group)  # they may have changed
                return found
            self.forget(key)
            known = None
        if known is None:
            known = self._partitions[key] = asyncio.get_running_loop().create_future()
            self._background.spawn(self._bring_up(key, partition, known))
        return await asyncio.shield(known)

    def known(self, key: ShareKey) -> SharedPartition | None:
        """A partition that has been brought up."""
        future = self._partitions.get(key)
        return future.result() if future is not None and future.done() and future.exception() is None else None

    def served(self) -> Iterable[ShareKey]:
        """The partitions and groups that are served here."""
        return self._partitions.keys()

    def forget(self, key: ShareKey) -> None:
        """Let it be brought up anew."""
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
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leader epoch began meanwhile")
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
            result.exception()  # nobody may be waiting any more
            return
        except BaseException:
            result.cancel()
            raise
        log.info("%s-%d is shared by %s from %d on", partition.topic, partition.index, key.group, shared.start_offset)
        result.set_result(SharedPartition(key, partition, leader_epoch, stored.state_epoch, shared, settings))

    async def _begin(
        self, key: ShareKey, partition: Partition, leader_epoch: int, state_epoch: int, settings: ShareSettings
    ) -> int:
        """Where a group begins, which is stored at once: the next leader must not begin anywhere else.

        Kafka stores it with what is said first, and forgets what was sent before if its leader dies until then.
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
            found = partition.log.offset_for_timestamp(self._clock_ms() - settings.offset_reset_ms)
            if found is not None:
                return found.offset
        return partition.high_watermark

    # --- members -------------------------------------------------------------------------------------------------

    def acquire(
        self, one: SharedPartition, member: str, *, max_records: int, batch_size: int, max_bytes: int, strict: bool
    ) -> tuple[Buffer, list[Acquired]]:
        """Read on for a member, and lock what it gets. Raises KafkaError.

        A member that waited for what was brought up anew meanwhile gets nothing: its locks would bind nobody.
        """
        if self.known(one.key) is not one:
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
        return (spanned(records, acquired[0].first, acquired[-1].last), acquired) if acquired else (b"", [])

    def _without_aborted(
        self, one: SharedPartition, records: Buffer, offset: int, acquired: list[Acquired]
    ) -> list[Acquired]:
        """What was acquired but for records of aborted transactions, which are done with."""
        for first, last in aborted_batches(records, one.partition.log.aborted_in(records, offset)):
            one.shared.archive(first, last)
        return one.shared.held(acquired)

    async def acknowledge(self, one: SharedPartition, member: str, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Store what a member says of what it holds. Raises KafkaError: nothing happened."""
        renewed_until_ms = self._clock_ms() + one.settings.lock_duration_ms
        batches = one.shared.acknowledge(member, acknowledgements, renewed_until_ms=renewed_until_ms)
        self._locks.set(one.key, one.shared.next_lock_end_ms)
        await self._store(one, batches)

    def release(self, group: str, member: str) -> None:
        """A member is gone: others may have what it held. With the last one here, the group's partitions go.

        So whatever is done to the group while it has no members is seen by those that come later.
        """
        for key in list(self._partitions):
            if key.group == group and (one := self.known(key)) is not None:
                self._background.spawn(self._release(one, one.shared.release(member)))

    async def _release(self, one: SharedPartition, batches: list[StateBatch]) -> None:
        await self._store_if_possible(one, batches)
        self._forget_unread(one)

    def _forget_unread(self, one: SharedPartition) -> None:
        """What nobody reads goes once all is stored: whoever brings it up next must not overtake a change."""
        if not self._is_read(one.key.group) and not one.shared.changing and self.known(one.key) is one:
            self.forget(one.key)

    def _expire(self, key: ShareKey, now_ms: int) -> None:
        one = self.known(key)
        if one is None:
            return
        if batches := one.shared.expire(now_ms):
            log.info("locks on %s-%d of %s ran out: %s", one.partition.topic, key.partition, key.group, batches)
            self._background.spawn(self._store_if_possible(one, batches))
        self._locks.set(key, one.shared.next_lock_end_ms)

    async def _store_if_possible(self, one: SharedPartition, batches: list[StateBatch]) -> None:
        try:
            await self._store(one, batches)
        except KafkaError as error:
            log.info("%s: not stored: %s", one.key, error)

    async def _store(self, one: SharedPartition, batches: list[StateBatch]) -> None:
        """Store a change, and let it hold. Raises KafkaError; then it has not happened."""
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
            if isinstance(error, KafkaError) and error.code in OVER and self.known(one.key) is one:
                log.info("%s is served here no longer: %s", one.key, error)
                self.forget(one.key)
            raise
        else:
            one.shared.complete(batches)
            self._replicas.rooms.fetches.check(one.partition)
        finally:
            self._forget_unread(one)

    def _resigned(self, topic: str, index: int) -> None:
        for key in [key for key in self._partitions if key.partition == index]:
            one = self.known(key)
            if one is not None and one.partition.topic == topic:
                self.forget(key)
