"""The topics that an application makes for itself: changelogs as wide as the tasks, repartition topics.

Any member may find that one is missing or too narrow, several at once: whoever comes second finds it done. A changelog
only ever grows. Partitions beyond the tasks of today are the state of partitions that were merged away: empty, and
ready for the next split.
"""

from __future__ import annotations

import logging

from clients.admin import Admin, NewTopic
from clients.streams.changelog import CONFIGS, changelog_topic
from clients.streams.topology import Built
from protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)


class InternalTopics:
    """The internal topics of one application."""

    def __init__(self, admin: Admin, application_id: str, built: Built, replication_factor: int) -> None:
        self._admin = admin
        self._repartition = built.repartition_topics
        self._changelogs = {changelog_topic(application_id, name) for one in built.subtopologies for name in one.stores}
        self._replication_factor = replication_factor
        self._widths: dict[str, int] = {}
        """How many partitions each has at least."""

    async def prepare_repartition(self) -> None:
        """Make the topics between subtopologies, which have to be there before they are subscribed to."""
        for topic, sources in self._repartition.items():
            await self.prepare(topic, max([await self._width(source) for source in sources], default=1) or 1)

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

    async def _width(self, topic: str) -> int:
        """How many partitions there are, those included that still hold records of theirs; 0 without the topic."""
        try:
            return 1 + max((await self._admin.describe_topic(topic)).partitions, default=-1)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return 0

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
        try:
            await self._admin.create_topics([wanted])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        await self._admin.wait_for_topic(topic)
