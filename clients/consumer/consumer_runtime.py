"""`ConsumerRuntime`: creates the parts of one consumer, starts and stops them.

`Consumer` adds the application's calls to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Self

from anabranch.clients.clock import time_of_day_clock
from anabranch.clients.consumer.classic_group_session import ClassicGroupSession
from anabranch.clients.consumer.consumer_config import CLASSIC, ConsumerConfig
from anabranch.clients.consumer.consumer_group_membership import ConsumerGroupMembership
from anabranch.clients.consumer.consumer_group_session import ConsumerGroupSession, has_consumer_groups
from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.consumer.delivery_audit import DeliveryAudit
from anabranch.clients.consumer.fetcher import Fetcher
from anabranch.clients.consumer.gate_watcher import GateWatcher
from anabranch.clients.consumer.joiner import Joiner
from anabranch.clients.consumer.listener import PartitionKeyRebalanceListener
from anabranch.clients.consumer.log_start_watch import LogStartWatch
from anabranch.clients.consumer.offset_committer import OffsetCommitter
from anabranch.clients.consumer.offset_lookup import ISOLATION_LEVELS, OffsetAndTimestamp, OffsetResets, find_offsets
from anabranch.clients.consumer.poll_loop import PollLoop
from anabranch.clients.consumer.starting_positions import StartingPositions
from anabranch.clients.metadata import ClusterMetadata
from anabranch.clients.network import Network
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition, checked_partition

log = logging.getLogger(__name__)

ASSURANCE_TIMEOUT_S: Final = 2.0
"""How long a stopping consumer waits for the group to confirm that it still accepts its commit."""


class ConsumerRuntime:
    """The parts of one consumer, and their lifecycle; an async context manager."""

    def __init__(
        self,
        config: ConsumerConfig,
        listener: PartitionKeyRebalanceListener,
        clock_ms: Callable[[], int] | None,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._network_config = config.network
        self._isolation_level = ISOLATION_LEVELS[config.isolation_level]
        self._resets = OffsetResets(config.auto_offset_reset, self._isolation_level, clock_ms=lambda: self._clock_ms())
        self._listener = listener
        self._chosen_clock_ms = clock_ms
        self._rng = rng
        self._core = config.core(config.group_protocol, rng, listener)
        self._audit: DeliveryAudit | None = None
        self._session: ClassicGroupSession | None = None
        self._joiner: Joiner | None = None
        self._started = False
        self._delivered = 0

    async def start(self) -> None:
        """Connect. The group is joined by the first request for records; without a group, reading begins now.

        Raises:
            ConnectionError: None of the servers answers.
            KafkaError: A topic is refused for good, as for a client without permission.
            RuntimeError: The consumer is started already.
        """
        if self._started:
            raise RuntimeError("a consumer can be started only once")
        self._clock_ms = self._chosen_clock_ms or time_of_day_clock()
        self._wakeup = asyncio.Event()
        self._network = Network(self._network_config, self._rng)
        if not self._config.allow_auto_create_topics:
            self._network.without_auto_creation()
        self._network.follow(*self._core.ownership.topics)
        try:
            await self._network.start()
            if self._config.audit is not None:
                group_id = self._config.group_id or ""
                self._audit = DeliveryAudit.to(self._config.audit, self._network_config, group_id, self._rng)
                await self._audit.start()
            await self._choose_protocol()
        except BaseException:
            try:
                if self._audit is not None:
                    await self._audit.stop()
            finally:
                await self._network.close()
            raise
        self._wire()
        self._started = True
        if self._session is None:
            try:
                _check_partitions(self._core.ownership.chosen or (), self._network.metadata)
                await self._polling.settle()
            except BaseException:
                await self.stop()
                raise

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, in place of those assigned before; partitions that stay continue at their positions.

        For a consumer without topics and without a group. There are no gates: earlier records of a key may be in a
        partition that is not assigned. Before `start`, the partitions are read from the start on.

        Args:
            partitions: All that are to be read. A topic that does not exist yet is waited for.

        Raises:
            KafkaError: A topic has no such partition (UNKNOWN_TOPIC_OR_PARTITION), or is refused.
            ValueError: The consumer has topics, whose partitions are assigned to it.
        """
        if self._config.topics:
            raise ValueError("assign() needs a consumer without topics: Consumer(bootstrap_servers=...)")
        chosen = set(map(checked_partition, partitions))
        if not self._started:
            self._core.ownership.assign(chosen)
            return
        self._network.follow(*{one.topic for one in chosen})
        _check_partitions(chosen, await self._network.refresh())
        self._core.ownership.assign(chosen)
        await self._polling.settle()
        self._wakeup.set()

    async def _choose_protocol(self) -> None:
        membership = self._core.membership
        if not isinstance(membership, ConsumerGroupMembership):
            return
        if not await has_consumer_groups(self._network, membership.group_id):
            log.warning("%s: the cluster has no KIP-848 groups, using the classic protocol", membership.group_id)
            self._core = self._config.core(CLASSIC, self._rng, self._listener)

    def _wire(self) -> None:
        """Create the parts around the core; each refers only to those created before.

        All of them wake a waiting request for records by setting `wakeup`.
        """
        network, core, wakeup = self._network, self._core, self._wakeup
        self._end_listening = network.on_metadata(self._learn)
        self._learn(network.metadata)
        if core.membership is not None:
            intervals = {
                "heartbeat_interval_ms": self._config.heartbeat_interval_ms,
                "rebalance_timeout_ms": self._config.rebalance_timeout_ms,
            }
            if isinstance(core.membership, ConsumerGroupMembership):
                self._session = ConsumerGroupSession(network, core.membership, wakeup=wakeup, **intervals)
            else:
                self._session = ClassicGroupSession(network, core.membership, wakeup=wakeup, **intervals)
            self._joiner = Joiner(
                network, core.ownership, self._session, self._config.topics, clock_ms=self._clock_ms, wakeup=wakeup
            )
        self._gatekeeper = GateWatcher(network, core.gates, self._session, wakeup, LogStartWatch(network, core, wakeup))
        self._committer = OffsetCommitter(core, self._session, self._audit)
        self._fetcher = Fetcher(
            network,
            core.assignment,
            max_wait_ms=self._config.fetch_max_wait_ms,
            on_arrival=wakeup.set,
            isolation_level=self._isolation_level,
            client_rack=self._config.client_rack,
            replica_lease_ms=self._network_config.metadata_max_age_ms,
        )
        self._polling = PollLoop(
            network,
            core,
            self._session,
            self._joiner,
            StartingPositions(network, core, self._session.committed if self._session else None, self._resets),
            self._committer,
            self._gatekeeper,
            self._fetcher,
            self._listener,
            wakeup=wakeup,
        )
        self._gatekeeper.start()

    def _learn(self, metadata: ClusterMetadata) -> None:
        self._core.learn(metadata)
        self._wakeup.set()

    async def stop(self) -> None:
        """Flush, commit (unless that is the application's own business), leave the group, disconnect.

        The listener is told that the partitions are revoked, or lost if the group went on without this member. A commit
        that is refused or not answered is no error: the next owner begins further back. Stopping twice does nothing.

        Raises:
            RuntimeError: Some deliveries could not be written to the audit.
        """
        if not self._started:
            return
        self._started = False
        self._polling.close()
        try:
            if self._joiner is not None:
                await self._joiner.close()
            if self._session is not None:
                with contextlib.suppress(KafkaError):  # then they are lost, and the listener is notified
                    await self._session.confirm_membership(timeout_s=ASSURANCE_TIMEOUT_S)
            await self._polling.give_up()
        finally:
            self._fetcher.close()
            self._end_listening()
            try:
                if self._audit is not None:
                    await self._audit.stop()
            finally:
                await self._gatekeeper.close()
                if self._session is not None:
                    await self._session.leave()
                await self._network.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _check_started(self) -> None:
        if not self._started:
            raise RuntimeError("the consumer is not started, or was stopped")
        self._polling.check_alive()

    async def _offsets_at(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = await self._find_offsets(ends)
        return {partition: one.offset for partition, one in found.items() if one is not None}

    async def _find_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        self._check_started()
        requested = {checked_partition(given): timestamp_ms for given, timestamp_ms in timestamps.items()}
        return await find_offsets(self._network, requested, self._isolation_level)

    def _note(self, records: Sequence[ConsumerRecord]) -> None:
        """Count and audit delivered records of one partition, without awaiting: see `poll_loop`."""
        if self._audit is not None and self._session is not None:
            begin_number = self._core.assignment[TopicPartition(records[0].topic, records[0].partition)].begin_number
            self._audit.note(
                records, owner=self._session.membership.owner, now_ms=self._clock_ms(), begin_number=begin_number
            )


def _check_partitions(partitions: Iterable[TopicPartition], metadata: ClusterMetadata) -> None:
    """Raise KafkaError for partitions that their topics do not have. A missing topic may still be created."""
    for one in sorted(partitions):
        topic = metadata.topics.get(one.topic)
        if topic is not None and one.partition not in topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(one))
