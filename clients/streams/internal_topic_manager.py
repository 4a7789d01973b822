"""The topics that an application makes for itself: changelogs as wide as the tasks, repartition topics.

Any member may find that one is missing or too narrow, several at once; the second one finds it done. A changelog
only ever grows. Partitions beyond the tasks of today are the state of partitions that were merged away: empty, and
ready for the next split.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from anabranch.clients.admin import Admin, NewTopic
from anabranch.clients.metadata import Topic
from anabranch.clients.streams.changelog import CONFIGS, changelog_topic
from anabranch.clients.streams.partition_grouper import TopicsInfo, repartition_counts
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.topology_graph import Built, Subtopology
from anabranch.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

CREATE_TIMEOUT_S: Final = 30.0
CREATE_RETRY_S: Final = 0.1


class InternalTopicManager:
    """Makes and widens the topics that one application has for itself."""

    def __init__(self, admin: Admin, application_id: str, built: Built, replication_factor: int) -> None:
        self._admin = admin
        self._topology = topics_of(built, application_id)
        self._outside = [topic for topic in built.sources if topic not in built.repartition_topics]
        self._repartition = built.repartition_topics
        self._changelogs = {changelog_topic(application_id, name) for one in built.subtopologies for name in one.stores}
        self._replication_factor = replication_factor
        self._widths: dict[str, int] = {}
        """How many partitions each has at least."""

    async def prepare_repartition(self) -> None:
        """Make the topics between subtopologies, which have to be there before they are subscribed to."""
        if not self._repartition:
            return
        found = {name: await self._described(name) for name in self._outside}
        partitions = {name: (0,) if topic is None else topic.partitions.keys() for name, topic in found.items()}
        lineages = {name: topic.lineage for name, topic in found.items() if topic and topic.lineage and topic.gated}
        for name, count in repartition_counts(self._topology, partitions, lineages).items():
            await self.prepare(name, count)

    async def must_exist(self, topic: str) -> None:
        """`StreamsError` if a topic does not exist that the application writes to but does not make."""
        if await self._described(topic) is None:
            raise StreamsError(f"the topic {topic} for records that fail does not exist: create it first")

    async def prepare(self, topic: str, partitions: int) -> bool:
        """Make a topic, or widen a changelog, to at least so many partitions; whether it was not there before."""
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
        """These topics may have been deleted: look again how wide they are before they are used."""
        for topic in topics:
            self._widths.pop(topic, None)

    async def _width(self, topic: str) -> int:
        """How many partitions there are, those included that still hold records of theirs; 0 without the topic."""
        described = await self._described(topic)
        return 0 if described is None else 1 + max(described.partitions, default=-1)

    async def _described(self, topic: str) -> Topic | None:
        try:
            return await self._admin.describe_topic(topic)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return None

    async def _widen(self, topic: str, partitions: int) -> None:
        try:
            await self._admin.create_partitions(topic, partitions)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_PARTITIONS:
                raise
            log.debug("another member has widened %s: %s", topic, error)
        await self._admin.wait_until(
            lambda metadata: topic in metadata.topics and len(metadata.topics[topic].live) >= partitions, topic
        )
        log.info("%s has %d partitions now", topic, partitions)

    async def _create(self, topic: str, partitions: int) -> None:
        wanted = NewTopic(
            name=topic,
            partitions=partitions,
            replication_factor=self._replication_factor,
            configs=CONFIGS if topic in self._changelogs else {},
        )
        async with asyncio.timeout(CREATE_TIMEOUT_S):
            while not await self._try_to_create(wanted):
                if await self._described(topic) is not None:
                    break
                await asyncio.sleep(CREATE_RETRY_S)  # one of this name is being deleted
        await self._admin.wait_for_topic(topic)

    async def _try_to_create(self, wanted: NewTopic) -> bool:
        """Make a topic; False if there is one of this name, which may be another member's."""
        try:
            await self._admin.create_topics([wanted])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True


def topics_of(built: Built, application_id: str) -> list[TopicsInfo]:
    """The topics of each subtopology, as the assignor needs them."""
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
