"""Reads changelogs: whole ones to restore a task, their ends to keep a standby up to date.

A consumer without a group and without gates, for exactly the partitions that `follow` names, on its own connections so
that restoring does not delay processing. It returns only committed records. Bounds of changelogs are looked up over
other connections, because a fetch that waits for records blocks its own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping

from anabranch.clients.config import NetworkConfig
from anabranch.clients.consumer.assignment import Assignment
from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.consumer.fetcher import Fetcher
from anabranch.clients.consumer.offset_lookup import READ_COMMITTED, READ_UNCOMMITTED, OffsetResets
from anabranch.clients.network import Network
from anabranch.clients.streams.changelog_bounds import ChangelogBounds
from anabranch.protocol.topic_partition import TopicPartition

MAX_WAIT_MS = 100
REPLICA_WAIT_MS = 1000


class ChangelogReader:
    """Fetches the changelogs of one instance, and looks up their bounds."""

    def __init__(
        self, config: NetworkConfig, rng: random.Random, on_arrival: Callable[[], None], questions: Network
    ) -> None:
        self._questions = questions
        self._network = Network(config, rng)
        self._network.without_auto_creation()
        self._assignment = Assignment()
        self._begins = OffsetResets("earliest", READ_UNCOMMITTED)
        # Not the end of committed records: a transaction that was open then may be decided by now.
        self._ends = OffsetResets("latest", READ_UNCOMMITTED)
        self._on_arrival = on_arrival
        self._fetcher: Fetcher | None = None

    async def start(self) -> None:
        """Connect."""
        try:
            await self._network.start()
        except BaseException:
            await self._network.close()
            raise
        self._fetcher = Fetcher(
            self._network,
            self._assignment,
            max_wait_ms=MAX_WAIT_MS,
            on_arrival=self._on_arrival,
            isolation_level=READ_COMMITTED,
        )

    async def stop(self) -> None:
        """Disconnect."""
        if self._fetcher is not None:
            self._fetcher.close()
        await self._network.close()

    def follow(self, start_offsets: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions: current ones continue, new ones start at the given offsets."""
        if self._assignment_is(start_offsets):
            return
        topics = {partition.topic for partition in start_offsets}
        fresh = topics - self._network.metadata.topics.keys()
        self._network.follow(*topics)
        known = {progress.partition for progress in self._assignment}
        self._assignment.adjust(start_offsets)
        for partition in start_offsets.keys() - known:
            self._assignment[partition].begin(start_offsets[partition])
        if fresh:
            self._network.request_refresh()
        self._poke()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue a partition at another offset."""
        if partition in self._assignment:
            self._assignment[partition].begin(offset)
            self._poke()

    def take(self, partition: TopicPartition, limit: int) -> tuple[list[ConsumerRecord], int]:
        """Return up to `limit` fetched committed records, and the next offset after them. Raises KafkaError."""
        progress = self._assignment[partition]
        taken: list[ConsumerRecord] = []
        while progress.buffered and len(taken) < limit:
            taken += progress.take(limit - len(taken))
        if not taken:
            progress.check_damage()
        self._poke()
        return taken, progress.position

    def waiting(self) -> list[TopicPartition]:
        """Return the partitions with fetched data, even if its next record is damaged."""
        return [one.partition for one in self._assignment.in_turn() if one.buffered or one.damaged]

    def lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are still to be read, as of the last response; None before the first."""
        progress = self._assignment.get(partition)
        if progress is None or progress.high_watermark < 0:
            return None
        return progress.high_watermark - progress.position

    def lost_partitions(self) -> list[TopicPartition]:
        """Return the partitions whose next offset is out of range."""
        return [progress.partition for progress in self._assignment if progress.must_reset]

    def topic_ids(self) -> dict[str, bytes]:
        """Return the known ids of the followed topics."""
        topics = self._network.metadata.topics
        return {
            name: topics[name].topic_id for name, _ in (one.partition for one in self._assignment) if name in topics
        }

    def request_refresh(self) -> None:
        """Refresh the metadata of the followed topics."""
        self._network.request_refresh()

    async def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ChangelogBounds]:
        """Look up the current bounds of these partitions, including open transactions, and the ids of their topics.

        Leaves out those that have no leader (`obstacles`). All replicas are asked who leads: a leader that was replaced
        and does not know it shows itself, and its end lies before records that its successor has.
        """
        if not partitions:
            return {}
        self._questions.follow(*{partition.topic for partition in partitions})
        metadata = await self._questions.refresh()
        known = [found for one in partitions if (found := metadata.partition(*one)) is not None]
        replicas = {node for one in known for node in one.replicas} & metadata.nodes.keys()
        topics = (await self._questions.refresh_from(sorted(replicas), timeout_ms=REPLICA_WAIT_MS)).topics
        ids = {one: topics[one.topic].topic_id for one in partitions if one.topic in topics}
        starts, ends = await asyncio.gather(self._offsets(self._begins, ids), self._offsets(self._ends, ids))
        return {one: ChangelogBounds(ids[one], starts[one], ends[one]) for one in starts.keys() & ends.keys()}

    def obstacles(self, partitions: Collection[TopicPartition]) -> list[str]:
        """Describe why these partitions cannot be queried."""
        return [obstacle for one in partitions if (obstacle := self._questions.metadata.obstacle(*one))]

    async def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the current ends of these partitions, including open transactions. Raises `TimeoutError` if one stays
        unknown.
        """
        self._questions.follow(*{partition.topic for partition in partitions})
        try:
            await self._questions.wait_for(
                lambda metadata: all(metadata.partition(*one) is not None for one in partitions),
                timeout_ms=self._questions.config.request_timeout_ms,
            )
        except TimeoutError:
            raise TimeoutError(f"changelogs are missing: {'; '.join(self.obstacles(partitions))}") from None
        return await self._offsets(self._ends, partitions)

    async def _offsets(self, policy: OffsetResets, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await policy.find(self._questions, list(partitions), set())

    def _assignment_is(self, start_offsets: Mapping[TopicPartition, int]) -> bool:
        return len(start_offsets) == len(self._assignment) and all(one in self._assignment for one in start_offsets)

    def _poke(self) -> None:
        if self._fetcher is not None:
            self._fetcher.poke()
