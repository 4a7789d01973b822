"""Sends the markers of decided transactions to the leaders of their partitions, until each is written.

One request is in flight per broker, this one included, and carries all that gathered meanwhile. What fails is sorted
again after a short pause, or as soon as the metadata changes, because its partition may have another leader then: until
its marker is there, a transaction holds up every reader of committed records and its own producer. A partition that the
metadata does not know is looked up in ZooKeeper: only one that is not there, or is about to be deleted, needs none. To
forget it because a young broker has not heard of it yet would leave its records undecided for ever.

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
"""Pauses between attempts, as short as Kafka's; one line in the log per outage, at its first failure."""


class MarkerSender:
    """Sends the markers of this coordinator to the leaders of their partitions."""

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
        """`on_progress` is called whenever partitions of a transaction are done, the last of them included."""
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
        """How many attempts in a row have failed, by broker."""
        self._peers = PeerConnections(lambda: config.current, metadata, name="transaction-coordinator")

    def send(self, decided: DecidedTransaction) -> None:
        """See to it that every partition of the transaction gets its marker."""
        if decided.done:
            self._on_progress(decided)
        else:
            self._sort(decided, list(decided.transaction.partitions))

    def forget(self, shard: TransactionShard) -> None:
        """Another broker coordinates the transactions of this shard now, and sends their markers."""
        self._queues.forget(shard)

    async def close(self) -> None:
        """Close the connections; the background work was stopped before."""
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
        """Send one request and act on its answer."""
        try:
            connection = await self._peers.to(node)
            response = await connection.call(request_of(load), timeout_ms=self._config.current.request_timeout_ms)
        except (ConnectionError, TimeoutError, KafkaError) as error:
            if node not in self._failures:
                log.info("%d transactions wait with their markers for broker %d: %s", len(load), node, error)
            self._sort_later(node, load)
            return
        again: Load = {}
        for outcome in outcomes(load, response):
            decided = outcome.decided
            if not self._is_current(decided.shard):
                continue
            if outcome.fenced is not None:
                # Its successor, if there is one, has all that it needs; if there is none, its state stays Prepare.
                log.warning("%s: no more markers, broker %d says %s", decided.transaction, node, outcome.fenced.name)
                continue
            for partition in outcome.marked:
                decided.transaction.marked(partition)
            if outcome.again:
                if node not in self._failures:
                    log.info("%s: broker %d says %s", decided.transaction.transactional_id, node, outcome.again)
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
        """Sort what has no leader until it has one, or turns out to be gone."""
        rounds = 0
        try:
            while load := self._queues.pop(NOWHERE):
                rounds += 1
                for decided, partitions in load.items():
                    gone = {one for one in partitions if await self._is_gone(one)}
                    if not self._is_current(decided.shard):
                        continue
                    for partition in gone:
                        log.info("%s: %s-%d is gone", decided.transaction.transactional_id, *partition)
                        decided.transaction.marked(partition)
                    self._sort(decided, partitions - gone)
                    if gone:
                        self._on_progress(decided)
                await self.pause(rounds)
        finally:
            self._sending.discard(NOWHERE)

    async def pause(self, failures: int) -> None:
        """Wait after so many failures in a row, but no longer than until the metadata changes."""
        wait_ms, before = RETRY.wait_ms(failures, self._rng), self._metadata.image
        await self._metadata.wait_until(lambda image: image is not before, wait_ms)

    async def _is_gone(self, partition: TopicPartition) -> bool:
        """Whether a partition exists no longer, by the word of ZooKeeper if the metadata does not know it."""
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
            log.info("whether %s-%d is gone cannot be known yet: %s", topic, index, error)
            return False
