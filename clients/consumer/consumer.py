"""The public `Consumer`: aiokafka's shape, with keys that keep their order while partitions split and merge.

Everything that must happen in order happens inside the call that asks for records (`getmany`, `getone`, `async for`),
in this order: boundaries that were reached are flushed and committed, a lapsed membership joins again, positions are
committed if it is time, opened gates are announced, records are handed out. Whatever was handed out before such a call
counts as processed. Fetching, heartbeats and questions about gates go on in between.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from clients.clock import wall_clock_ms
from clients.config import NetworkConfig, parse_servers
from clients.consumer.audit import DeliveryAudit
from clients.consumer.delivery import NO_GENERATION, ConsumerRecord, Deliveries, mark_crossed
from clients.consumer.fetcher import Fetcher
from clients.consumer.gatekeeper import Gatekeeper, GateOpening, GateView
from clients.consumer.listener import PartitionKeyRebalanceListener
from clients.consumer.membership import Membership, TopicShape
from clients.consumer.offsets import OffsetResets
from clients.consumer.positions import UNKNOWN, Assignment
from clients.consumer.session import GroupSession
from clients.network import Network, make_rng
from clients.producer.producer import Producer
from protocol.errors import ErrorCode, KafkaError
from protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

MEMBERSHIP_LOST: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
)


class Consumer:
    """Reads topics, alone (`group_id=None`, every partition) or as one member of a group."""

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        client_id: str = "anabranch",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        session_timeout_ms: int = 45000,
        rebalance_timeout_ms: int = 300000,
        heartbeat_interval_ms: int = 3000,
        max_poll_records: int = 500,
        fetch_max_wait_ms: int = 500,
        request_timeout_ms: int = 40000,
        metadata_max_age_ms: int = 300000,
        ordered_delivery: bool = True,
        listener: PartitionKeyRebalanceListener | None = None,
        audit: str | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
        rng: random.Random | None = None,
    ) -> None:
        if not topics:
            raise ValueError('a consumer needs at least one topic: Consumer("orders", group_id="billing")')
        if audit is not None and group_id is None:
            raise ValueError("an audit is of a group: give group_id together with audit")
        self._topics = topics
        self._group_id = group_id
        self._resets = OffsetResets(auto_offset_reset)
        self._auto_commit_s = auto_commit_interval_ms / 1000 if enable_auto_commit and group_id else None
        self._max_poll_records = max_poll_records
        self._fetch_max_wait_ms = fetch_max_wait_ms
        self._ordered = ordered_delivery
        self._listener = listener or PartitionKeyRebalanceListener()
        self._audit_topic = audit
        self._clock_ms = clock_ms
        self._rng = make_rng(rng)
        self._membership_settings = (session_timeout_ms, rebalance_timeout_ms, heartbeat_interval_ms, group_instance_id)
        self._network_config = NetworkConfig(
            bootstrap_servers=parse_servers(bootstrap_servers),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            metadata_max_age_ms=metadata_max_age_ms,
        )
        self._assignment = Assignment()
        self._audit: DeliveryAudit | None = None
        self._session: GroupSession | None = None
        self._shapes: dict[str, TopicShape] = {}
        self._out_of_range: set[TopicPartition] = set()
        self._commit_due = 0.0
        self._started = False

    # life

    async def start(self) -> None:
        """Connect, and join the group. `ConnectionError` when no server answers."""
        loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._network = Network(self._network_config, self._rng)
        self._network.follow(*self._topics)
        await self._network.start()
        if self._group_id is not None:
            self._session = self._make_session(self._group_id)
        self._gatekeeper = Gatekeeper(self._network, self._session, self._wake, ordered=self._ordered)
        self._deliveries = Deliveries(
            self._network, self._assignment, self._gatekeeper, in_group=self._session is not None
        )
        self._fetcher = Fetcher(
            self._network,
            self._assignment,
            max_wait_ms=self._fetch_max_wait_ms,
            on_arrival=self._wake,
            on_out_of_range=self._note_out_of_range,
        )
        self._gatekeeper.start()
        if self._audit_topic is not None:
            self._audit = self._make_audit(self._audit_topic)
            await self._audit.start()
        self._commit_due = loop.time() + (self._auto_commit_s or 0)
        self._started = True
        if self._session is None:
            await self._assign_everything()

    async def stop(self) -> None:
        """Commit (unless committing is the application's own business), leave the group, disconnect."""
        if not self._started:
            return
        self._started = False
        try:
            if self._auto_commit_s is not None and self._session is not None and self._session.stable:
                await self._commit_quietly()
        finally:
            self._fetcher.close()
            if self._audit is not None:
                await self._audit.stop()
            await self._gatekeeper.close()
            if self._session is not None:
                await self._session.leave()
            await self._network.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    # records

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records by partition, in order; empty when none may be handed out within `timeout_ms`."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        limit = self._max_poll_records if max_records is None else max_records
        while True:
            self._news.clear()
            await self._before_delivery()
            taken = self._deliveries.take(limit)
            if taken:
                self._fetcher.poke()
                await self._write_audit(taken)
                return taken
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                return {}

    async def getone(self) -> ConsumerRecord:
        """The next record, however long it takes."""
        while True:
            for records in (await self.getmany(timeout_ms=1000, max_records=1)).values():
                return records[0]

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        return await self.getone()

    # positions

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads now."""
        return {progress.partition for progress in self._assignment}

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be handed out; -1 while unknown."""
        return self._assignment[partition].position

    def highwater(self, partition: TopicPartition) -> int:
        """The high watermark as of the last fetch; -1 while unknown."""
        return self._assignment[partition].high_watermark

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset. Gates are evaluated afresh; those of descendants do not close again (F8)."""
        self._assignment[partition].seek(offset)
        self._fetcher.poke()

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until they are resumed."""
        for partition in partitions:
            self._assignment[partition].paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions. A closed gate stays closed."""
        for partition in partitions:
            self._assignment[partition].paused = False
        self._fetcher.poke()
        self._wake()

    def gates(self) -> list[GateView]:
        """Every closed gate of this consumer, and what it waits for."""
        return self._gatekeeper.views()

    def gate_openings(self) -> list[GateOpening]:
        """The gates that opened lately, with how long each was closed."""
        return list(self._gatekeeper.openings)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the positions, or these offsets. `KafkaError` when the group has moved on."""
        if self._session is None:
            raise ValueError("committing needs a group_id")
        if offsets is None:
            offsets = self._assignment.positions()
        if not offsets:
            return
        if self._audit is not None:
            await self._audit.flush()
        await self._session.commit(offsets)
        for partition, offset in offsets.items():
            progress = self._assignment.get(partition)
            if progress is not None:
                progress.committed = offset
            gate = self._gatekeeper.gate(partition.topic)
            if gate is not None:
                gate.note_committed(partition.partition, offset)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed offset of a partition; None if there is none."""
        if self._session is None:
            raise ValueError("committed offsets need a group_id")
        offset = (await self._session.committed([partition]))[partition]
        return None if offset < 0 else offset

    # between deliveries

    async def _before_delivery(self) -> None:
        await self._cross_boundaries()
        if self._session is not None and (not self._session.stable or self._topics_changed()):
            await self._rejoin(self._session)
        if self._out_of_range:
            await self._reset_out_of_range()
        if self._auto_commit_s is not None and asyncio.get_running_loop().time() >= self._commit_due:
            await self._commit_quietly()
        opened = self._deliveries.announcements()
        if opened:
            await self._tell(self._listener.on_partition_key_assigned, {row.partition for row, _ in opened})
            for progress, segment in opened:
                progress.announced.add(segment)

    async def _cross_boundaries(self) -> None:
        """R10 and F18: flush, commit, cross."""
        boundaries = self._deliveries.boundaries()
        if not boundaries:
            return
        handed_over = {boundary.progress.partition for boundary in boundaries if boundary.handed_over}
        if handed_over:
            await self._tell(self._listener.on_partition_key_maybe_revoked, handed_over)
        if self._session is not None:
            positions = {boundary.progress.partition: boundary.progress.position for boundary in boundaries}
            if not await self._commit_quietly(positions):
                return
        else:
            for progress in {boundary.progress.partition: boundary.progress for boundary in boundaries}.values():
                gate = self._gatekeeper.gate(progress.partition.topic)
                if gate is not None:
                    gate.note_committed(progress.partition.partition, progress.position)
        mark_crossed(boundaries)
        self._wake()

    async def _commit_quietly(self, offsets: Mapping[TopicPartition, int] | None = None) -> bool:
        """Commit; a group that has moved on is no error here: its new owners read again what was not committed."""
        if self._auto_commit_s is not None:
            self._commit_due = asyncio.get_running_loop().time() + self._auto_commit_s
        try:
            await self.commit(offsets)
        except KafkaError as error:
            if error.code not in MEMBERSHIP_LOST:
                raise
            log.info("not committed: %s", error)
            return False
        return True

    async def _rejoin(self, session: GroupSession) -> None:
        """Give up the old assignment, get the new one, and start where the group has committed."""
        if self._assignment and self._auto_commit_s is not None:
            await self._commit_quietly()
        session.membership.lapse()
        self._assignment.replace(())
        self._gatekeeper.forget()
        assigned = await session.join()
        # R19: whoever holds a child must know its parent. Metadata may lag behind the leader of the group.
        expected = {topic: assigned.generations.get(topic, NO_GENERATION) for topic in self._topics}
        await self._network.wait_for(
            lambda metadata: all(
                generation == NO_GENERATION
                or (topic in metadata.topics and metadata.topics[topic].generation >= generation)
                for topic, generation in expected.items()
            )
        )
        # A leader that knew less than we do is noticed here, and asked again with what is known by then.
        own = self._topic_shapes()
        made_from = {
            name: TopicShape(assigned.generations.get(name, shape.generation), shape.partitions)
            for name, shape in own.items()
        }
        self._shapes = {**made_from, **assigned.shapes}
        self._assignment.replace(assigned.partitions)
        await self._begin(await session.committed(assigned.partitions))

    async def _assign_everything(self) -> None:
        metadata = await self._network.wait_for(lambda known: all(topic in known.topics for topic in self._topics))
        everything = [
            TopicPartition(name, index) for name in self._topics for index in metadata.topics[name].partitions
        ]
        self._assignment.replace(everything)
        await self._begin({})

    async def _begin(self, committed: Mapping[TopicPartition, int]) -> None:
        """Set every position: where the group is, or where the reset policy says."""
        resumed = {topic for (topic, _), offset in committed.items() if offset >= 0}
        fresh: list[TopicPartition] = []
        for progress in self._assignment:
            offset = committed.get(progress.partition, UNKNOWN)
            gate = self._gatekeeper.gate(progress.partition.topic)
            if gate is not None:
                gate.note_committed(progress.partition.partition, offset)
            if offset >= 0:
                progress.seek(offset)
                progress.committed = offset
            else:
                fresh.append(progress.partition)
        for partition, offset in (await self._resets.find(self._network, fresh, resumed)).items():
            self._assignment[partition].seek(offset)
        self._fetcher.poke()

    async def _reset_out_of_range(self) -> None:
        lost, self._out_of_range = self._out_of_range, set()
        assigned = [partition for partition in sorted(lost) if partition in self._assignment]
        for partition, offset in (await self._resets.find(self._network, assigned, set())).items():
            log.warning("%s: offset %d is out of range, continuing at %d", partition, self.position(partition), offset)
            self._assignment[partition].seek(offset)
        self._fetcher.poke()

    # inside

    def _topics_changed(self) -> bool:
        """Whether a topic was resized, or partitions came or went, since the assignment was made from it."""
        return any(self._shapes.get(name) != shape for name, shape in self._topic_shapes().items())

    def _topic_shapes(self) -> dict[str, TopicShape]:
        topics = self._network.metadata.topics
        return {
            name: TopicShape(topics[name].generation, frozenset(topics[name].partitions))
            for name in self._topics
            if name in topics
        }

    async def _write_audit(self, taken: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        if self._audit is None:
            return
        assert self._session is not None, "an audit is of a group"
        member, now_ms = self._session.membership.member_id, self._clock_ms()
        for records in taken.values():
            await self._audit.write(records, member=member, now_ms=now_ms)

    async def _tell(self, callback: Callable[[Collection[TopicPartition]], object], about: set[TopicPartition]) -> None:
        result = callback(sorted(about))
        if inspect.isawaitable(result):
            await result

    def _note_out_of_range(self, partition: TopicPartition) -> None:
        self._out_of_range.add(partition)
        self._wake()

    def _wake(self) -> None:
        self._news.set()

    def _make_session(self, group_id: str) -> GroupSession:
        session_timeout_ms, rebalance_timeout_ms, heartbeat_interval_ms, instance_id = self._membership_settings
        membership = Membership(
            group_id,
            self._topics,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            group_instance_id=instance_id,
        )
        return GroupSession(
            self._network,
            membership,
            heartbeat_interval_ms=heartbeat_interval_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            on_lapse=self._wake,
        )

    def _make_audit(self, topic: str) -> DeliveryAudit:
        assert self._group_id is not None, "checked at construction"
        servers = [f"{host}:{port}" for host, port in self._network_config.bootstrap_servers]
        producer = Producer(
            bootstrap_servers=servers, client_id=f"{self._network_config.client_id}-audit", acks="all", rng=self._rng
        )
        return DeliveryAudit(producer, topic, group=self._group_id, rng=self._rng)
