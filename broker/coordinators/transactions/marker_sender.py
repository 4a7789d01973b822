"""The sender of transaction markers: writes them to the leaders of all partitions of decided transactions.

One request per broker is in flight, this broker included; it carries everything queued before it. A failed marker is
queued again after a short pause or a metadata change, since its partition may have a new leader. A missing marker
blocks readers of committed records and the producer. A partition that is not in the metadata is looked up in ZooKeeper:
only one that does not exist, or is about to be deleted, needs no marker. A broker with incomplete metadata must not
drop it, or the partition's records would stay undecided.

Source: kafka.coordinator.transaction.TransactionMarkerChannelManager.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from anabranch.broker.coordinators.transactions.transaction_markers import (
    NOWHERE,
    DecidedTransaction,
    Load,
    MarkerQueues,
    outcomes,
    request_of,
)
from anabranch.broker.coordinators.transactions.transactional_id import TopicPartition
from anabranch.broker.membership.peer_connections import PeerConnections
from anabranch.clients.backoff import Backoff
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.session import NoNode, ZkError
from anabranch.protocol.errors import KafkaError

if TYPE_CHECKING:
    from anabranch.broker.config.dynamic_config import DynamicConfig
    from anabranch.broker.coordinators.runtime.coordinator_tasks import CoordinatorTasks
    from anabranch.broker.coordinators.transactions.transaction_journal import TransactionShard
    from anabranch.broker.membership.cluster_membership import ClusterMembership
    from anabranch.broker.metadata.metadata_cache import MetadataCache

log: Final = logging.getLogger(__name__)

RETRY: Final = Backoff(initial_ms=50, limit_ms=100)
"""Pauses between attempts, as short as Kafka's. Only the first failure of an outage is logged."""


class MarkerSender:
    """Send the markers of this coordinator to the leaders of their partitions."""

    def __init__(
        self,
        config: DynamicConfig,
        metadata: MetadataCache,
        attachment: ClusterMembership,
        background: CoordinatorTasks,
        *,
        rng: random.Random,
        is_current: Callable[[TransactionShard], bool],
        on_progress: Callable[[DecidedTransaction], None],
    ) -> None:
        """`on_progress` is called whenever partitions of a transaction have their markers, including the last."""
        self._config = config
        self._metadata = metadata
        self._attachment = attachment
        self._rng = rng
        self._background = background
        self._is_current = is_current
        self._on_progress = on_progress
        self._queues = MarkerQueues()
        self._sending: set[int] = set()
        self._failures: dict[int, int] = {}
        """Broker -> the number of consecutive failed attempts."""
        self._peers = PeerConnections(lambda: config.current, metadata, name="transaction-coordinator")

    def send(self, decided: DecidedTransaction) -> None:
        """Queue the markers for all partitions of a transaction."""
        if decided.done:
            self._on_progress(decided)
        else:
            self._sort(decided, list(decided.transaction.partitions))

    def forget(self, shard: TransactionShard) -> None:
        """Drop the markers of a shard that another broker now coordinates."""
        self._queues.forget(shard)

    async def close(self) -> None:
        """Close the connections; the background tasks have been stopped before."""
        await self._peers.close()

    def _leader_of(self, partition: TopicPartition) -> int:
        image = self._metadata.image
        known = image.partition(*partition)
        return known.leader if known is not None and known.leader in image.brokers else NOWHERE

    def _sort(self, decided: DecidedTransaction, partitions: Iterable[TopicPartition]) -> None:
        for node in self._queues.add(decided, partitions, self._leader_of):
            if node not in self._sending:
                self._sending.add(node)
                self._background.spawn(self._look_for_leaders() if node == NOWHERE else self._empty_queue(node))

    async def _empty_queue(self, node: int) -> None:
        try:
            while load := self._queues.pop(node):
                await self._deliver(node, load)
        finally:
            self._sending.discard(node)

    async def _deliver(self, node: int, load: Load) -> None:
        try:
            connection = await self._peers.to(node)
            response = await connection.call(request_of(load), timeout_ms=self._config.current.request_timeout_ms)
        except (ConnectionError, TimeoutError, KafkaError) as error:
            if node not in self._failures:
                log.info("markers of %d transactions wait for broker %d: %s", len(load), node, error)
            self._sort_later(node, load)
            return
        again: Load = {}
        for outcome in outcomes(load, response):
            decided = outcome.decided
            if not self._is_current(decided.shard):
                continue
            if outcome.fenced is not None:
                # A new coordinator, if there is one, has all that it needs; otherwise the state stays Prepare.
                log.warning(
                    "%s: sending no more markers: broker %d answered %s", decided.transaction, node, outcome.fenced.name
                )
                continue
            for partition in outcome.marked:
                decided.transaction.remove_partition(partition)
            if outcome.again:
                if node not in self._failures:
                    log.info("%s: broker %d answered %s", decided.transaction.transactional_id, node, outcome.again)
                again[decided] = set(outcome.again)
            if outcome.marked:
                self._on_progress(decided)
        if again:
            self._sort_later(node, again)
        else:
            self._failures.pop(node, None)

    def _sort_later(self, node: int, load: Load) -> None:
        failures = self._failures[node] = self._failures.get(node, 0) + 1
        self._background.spawn(self._sort_after_pause(load, failures))

    async def _sort_after_pause(self, load: Load, failures: int) -> None:
        await self.pause(failures)
        for decided, partitions in load.items():
            if self._is_current(decided.shard):
                self._sort(decided, partitions)

    async def _look_for_leaders(self) -> None:
        """Retry markers whose partition has no leader, until it has one or no longer exists."""
        rounds = 0
        try:
            while load := self._queues.pop(NOWHERE):
                rounds += 1
                for decided, partitions in load.items():
                    gone = {one for one in partitions if await self._is_gone(one)}
                    if not self._is_current(decided.shard):
                        continue
                    for partition in gone:
                        log.info("%s: %s-%d was deleted", decided.transaction.transactional_id, *partition)
                        decided.transaction.remove_partition(partition)
                    self._sort(decided, partitions - gone)
                    if gone:
                        self._on_progress(decided)
                await self.pause(rounds)
        finally:
            self._sending.discard(NOWHERE)

    async def pause(self, failures: int) -> None:
        """Wait after consecutive failures, at most until the metadata changes."""
        wait_ms, before = RETRY.wait_ms(failures, self._rng), self._metadata.image
        await self._metadata.wait_until(lambda image: image is not before, wait_ms)

    async def _is_gone(self, partition: TopicPartition) -> bool:
        """Return whether a partition no longer exists; ask ZooKeeper if it is not in the metadata."""
        topic, index = partition
        if self._metadata.partition(topic, index) is not None:
            return False
        session = self._attachment.session
        try:
            path = paths.topic(topic)
            data, _ = await session.get(path)
            if index not in znodes.decode_topic(path, data).assignment:
                return True
            return await session.exists(paths.delete_topic(topic)) is not None
        except NoNode:
            return True
        except ZkError as error:
            log.info("cannot check whether %s-%d was deleted: %s", topic, index, error)
            return False
