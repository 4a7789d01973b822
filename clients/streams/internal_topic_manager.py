"""Creates the internal topics of an application: changelogs with a partition per task, and repartition topics.

Several members may find at once that one is missing or too narrow; creation is idempotent. A changelog only ever grows.
Its partitions beyond the current tasks are those of merged partitions: empty, and ready for the next split.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from anabranch.clients.admin import Admin
from anabranch.clients.metadata import Topic
from anabranch.clients.streams.changelog import CONFIGS, changelog_topic
from anabranch.clients.streams.partition_grouper import TopicsInfo, repartition_counts
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.topology_graph import Built, Subtopology
from anabranch.clients.topic_admin import NewTopic
from anabranch.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

CREATE_TIMEOUT_S: Final = 30.0
CREATE_RETRY_S: Final = 0.1
WIDEN_TIMEOUT_S: Final = 5.0
WIDEN_RETRY_S: Final = 0.5
BROKERS_MISSING: Final = frozenset({ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.REASSIGNMENT_IN_PROGRESS})
"""Why a topic that exists cannot be widened for now: a broker is down, or replicas move."""
MISSING_TOPIC_S: Final = 10.0
"""How long a start waits for a topic that no instance creates."""


class InternalTopicManager:
    """Creates and widens the internal topics of one application."""

    def __init__(self, admin: Admin, application_id: str, built: Built, replication_factor: int) -> None:
        self._admin = admin
        self._topology = topics_of(built, application_id)
        self._outside = [topic for topic in built.sources if topic not in built.repartition_topics]
        self._repartition = built.repartition_topics
        self._changelogs = {changelog_topic(application_id, name) for one in built.subtopologies for name in one.stores}
        self._replication_factor = replication_factor
        self._widths: dict[str, int] = {}
        """Topic -> its known minimum number of partitions."""

    async def prepare_repartition(self) -> None:
        """Create the repartition topics, which must exist before they are subscribed to.

        Their widths are those of the topics that the application reads, and stay. Raises `StreamsError` if one of those
        does not exist.
        """
        if not self._repartition:
            return
        found = {name: await self.must_exist(name, "topic") for name in self._outside}
        partitions = {name: topic.partitions.keys() for name, topic in found.items()}
        own = {name: await self._describe(name) for name in self._repartition}
        partitions |= {name: topic.partitions.keys() for name, topic in own.items() if topic is not None}
        lineages = {name: topic.lineage for name, topic in found.items() if topic.lineage and topic.gated}
        for name, count in repartition_counts(self._topology, partitions, lineages).items():
            await self.prepare(name, count)

    async def must_exist(self, topic: str, what: str) -> Topic:
        """Describe a topic that no instance creates. Raises `StreamsError` if it stays missing for MISSING_TOPIC_S: a
        broker that has just started does not know it yet.
        """
        deadline = asyncio.get_running_loop().time() + MISSING_TOPIC_S
        while (found := await self._describe(topic)) is None:
            if asyncio.get_running_loop().time() >= deadline:
                raise StreamsError(f"the {what} {topic} does not exist: create it first")
            await asyncio.sleep(CREATE_RETRY_S)
        return found

    async def missing(self, topics: Collection[str]) -> list[str]:
        """Return which of these topics do not exist."""
        return [topic for topic in sorted(topics) if await self._describe(topic) is None]

    async def topic_ids(self, topics: Collection[str]) -> dict[str, bytes]:
        """Return the present ids of these topics, of those that exist and can be looked up."""
        found: dict[str, bytes] = {}
        for topic in sorted(topics):
            try:
                described = await self._describe(topic)
            except (ConnectionError, TimeoutError, KafkaError) as error:
                log.debug("cannot look up %s: %s", topic, error)
                continue
            if described is not None:
                found[topic] = described.topic_id
        return found

    async def prepare(self, topic: str, partitions: int) -> bool:
        """Create a topic, or widen a changelog, to at least this many partitions; return whether it is new.

        Raises `TimeoutError` while a changelog cannot be widened, because brokers are down.
        """
        if self._widths.get(topic, 0) >= partitions:
            return False
        width = self._widths[topic] = await self._width(topic)
        if width == 0:
            await self._create(topic, partitions)
        elif width < partitions and topic in self._changelogs:
            await self._widen(topic, partitions)
        self._widths[topic] = max(width, partitions)
        return width == 0

    def forget(self, topics: Collection[str]) -> None:
        """Check the widths of these topics again before their next use, as they may have been deleted."""
        for topic in topics:
            self._widths.pop(topic, None)

    async def _width(self, topic: str) -> int:
        """Return the number of partitions, including draining ones; 0 without the topic."""
        described = await self._describe(topic)
        return 0 if described is None else 1 + max(described.partitions, default=-1)

    async def _describe(self, topic: str) -> Topic | None:
        try:
            return await self._admin.describe_topic(topic)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return None

    async def _widen(self, topic: str, partitions: int) -> None:
        deadline = asyncio.get_running_loop().time() + WIDEN_TIMEOUT_S
        while (obstacle := await self._try_to_widen(topic, partitions)) is not None:
            if asyncio.get_running_loop().time() >= deadline:
                raise TimeoutError(f"{topic} cannot be widened now: {obstacle}")
            await asyncio.sleep(WIDEN_RETRY_S)
        await self._admin.wait_until(
            lambda metadata: topic in metadata.topics and len(metadata.topics[topic].live) >= partitions, topic
        )
        log.info("%s has %d partitions now", topic, partitions)

    async def _try_to_widen(self, topic: str, partitions: int) -> KafkaError | None:
        """Widen a topic; return why it is not possible for now."""
        try:
            await self._admin.create_partitions(topic, partitions)
        except KafkaError as error:
            if error.code in BROKERS_MISSING:
                return error
            if error.code is not ErrorCode.INVALID_PARTITIONS:
                raise
            log.debug("another member has added partitions to %s: %s", topic, error)
        return None

    async def _create(self, topic: str, partitions: int) -> None:
        new_topic = NewTopic(
            name=topic,
            partitions=partitions,
            replication_factor=self._replication_factor,
            configs=CONFIGS if topic in self._changelogs else {},
        )
        async with asyncio.timeout(CREATE_TIMEOUT_S):
            while not await self._try_to_create(new_topic):
                if await self._describe(topic) is not None:
                    break
                await asyncio.sleep(CREATE_RETRY_S)  # a topic of this name is being deleted
        await self._admin.wait_for_topic(topic)

    async def _try_to_create(self, new_topic: NewTopic) -> bool:
        """Create a topic; return False if it exists, possibly created by another member."""
        try:
            await self._admin.create_topics([new_topic])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True


def topics_of(built: Built, application_id: str) -> list[TopicsInfo]:
    """Return the topics of each subtopology, for the assignor."""
    return [_topics_of(built, one, application_id) for one in built.subtopologies]


def _topics_of(built: Built, subtopology: Subtopology, application_id: str) -> TopicsInfo:
    own = {topic: None for topic in subtopology.sources if topic in built.repartition_topics}
    written = {topic for topic, writers in built.repartition_topics.items() if set(writers) & set(subtopology.sources)}
    together = (frozenset(subtopology.sources),) if len(subtopology.sources) > 1 and subtopology.stores else ()
    return TopicsInfo(
        source_topics=frozenset(subtopology.sources),
        sink_topics=frozenset(written),
        repartition_topics=own,
        changelog_topics=frozenset(changelog_topic(application_id, store) for store in subtopology.stores),
        copartitioned=together,
    )
