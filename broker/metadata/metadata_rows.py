"""A cache of the rows of Metadata responses, and of their bytes.

A client that lists all topics needs as many rows as there are partitions, nearly all equal to those of earlier
responses. A topic's row depends on the topic's image, the listener and the live brokers. Images are immutable: a row is
valid until the topic's image or the brokers are replaced. Callers must not modify a row or the list of brokers.

To encode 10,000 partitions takes 10 to 30 ms. So the row of a topic is encoded once per version, when it is first
needed, and `encoded` puts responses together from these bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.controller.model import INTERNAL_TOPICS
from anabranch.protocol import codec
from anabranch.protocol.apis.common_structs import GenerationStart, ReshardStep
from anabranch.protocol.apis.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.wire import EncodedElements

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import BrokerImage, ClusterImage, PartitionImage, TopicImage

FIRST_VERSION_WITH_LISTENERS: Final = 6
"""The first version whose response may have LISTENER_NOT_FOUND."""
GONE_MAX: Final = 100
"""The most cached rows of deleted topics."""


class CachedTopic:
    """The row of a topic, and its bytes."""

    __slots__ = ("encoded", "image", "row")

    def __init__(self, image: TopicImage, row: MetadataResponseTopic) -> None:
        self.image = image
        self.row = row
        self.encoded: dict[int, bytes] = {}
        """Version -> the encoded row."""


class MetadataRows:
    """Caches the rows of brokers and topics for Metadata responses."""

    def __init__(self) -> None:
        self._brokers: Mapping[int, BrokerImage] = {}
        self._broker_rows: dict[str, list[MetadataResponseBroker]] = {}
        """Listener -> the rows of the live brokers that have it."""
        self._topics: dict[tuple[str, int, bool], dict[str, CachedTopic]] = {}
        """(listener, first of the versions with equal rows, generation-aware) -> topic -> its row."""

    def row(
        self, image: ClusterImage, topic: TopicImage, listener: str, version: int, *, generation_aware: bool
    ) -> MetadataResponseTopic:
        """Return the row of a topic; only rows for generation-aware clients contain our tagged fields."""
        if image.brokers is not self._brokers:
            self._replace_brokers(image.brokers)
        alike = first_alike(version)
        topics = self._topics.get((listener, alike, generation_aware))
        if topics is None or len(topics) > len(image.topics) + GONE_MAX:
            topics = self._topics[listener, alike, generation_aware] = {}
        cached = topics.get(topic.name)
        if cached is None or cached.image is not topic:
            row = topic_row(image, topic, listener, alike)
            if generation_aware:
                add_generations(row, topic)
            cached = topics[topic.name] = CachedTopic(topic, row)
        if version not in cached.encoded:
            cached.encoded[version] = codec.encode(cached.row, version)
        return cached.row

    def encoded(
        self, rows: list[MetadataResponseTopic], listener: str, version: int, *, generation_aware: bool
    ) -> EncodedElements:
        """Return these rows with their bytes. Only rows that are not from the cache are encoded."""
        topics = self._topics.get((listener, first_alike(version), generation_aware), {})
        parts = []
        for row in rows:
            cached = topics.get(row.name or "")
            if cached is not None and cached.row is row:
                parts.append(cached.encoded[version])
            else:
                parts.append(codec.encode(row, version))
        return EncodedElements(rows, version, b"".join(parts))

    def broker_rows(self, image: ClusterImage, listener: str) -> list[MetadataResponseBroker]:
        """Return the rows of the live brokers that have a listener of this name."""
        if image.brokers is not self._brokers:
            self._replace_brokers(image.brokers)
        rows = self._broker_rows.get(listener)
        if rows is None:
            rows = self._broker_rows[listener] = [
                MetadataResponseBroker(node_id=broker.id, host=where[0], port=where[1], rack=broker.rack)
                for broker in image.brokers.values()
                if (where := broker.at(listener)) is not None
            ]
        return rows

    def _replace_brokers(self, brokers: Mapping[int, BrokerImage]) -> None:
        """Drop all rows if the live brokers have changed."""
        if brokers != self._brokers:
            self._topics.clear()
            self._broker_rows.clear()
        self._brokers = brokers


def first_alike(version: int) -> int:
    """Return the first of the versions whose rows are equal to those of this version."""
    return 0 if version == 0 else 1 if version < FIRST_VERSION_WITH_LISTENERS else FIRST_VERSION_WITH_LISTENERS


def topic_row(image: ClusterImage, topic: TopicImage, listener: str, version: int) -> MetadataResponseTopic:
    """Create the row of a topic."""
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[partition_row(image, partition, listener, version) for partition in topic.partitions.values()],
    )


def add_generations(row: MetadataResponseTopic, topic: TopicImage) -> None:
    """Set the tagged fields for generation-aware clients."""
    row.undeleted_partition_count = topic.undeleted_partition_count
    row.generation = topic.generation
    row.initial_partition_count = topic.initial_partition_count
    row.history = [ReshardStep(generation=generation, count=count) for generation, count in topic.history]
    row.base = topic.base
    row.ordered_delivery = topic.ordered_delivery
    row.min_insync_replicas = topic.min_insync_replicas
    row.has_generations = topic.has_generations
    for shown, partition in zip(row.partitions, topic.partitions.values(), strict=True):
        shown.partition_epoch = partition.partition_epoch
        shown.gen_start = [
            GenerationStart(generation=generation, leader_epoch=epoch) for generation, epoch in partition.gen_start
        ]
        shown.marked_for_deletion = partition.marked_for_deletion


def partition_row(
    image: ClusterImage, partition: PartitionImage, listener: str, version: int
) -> MetadataResponsePartition:
    """Create the row of a partition.

    Without a live leader it keeps the leader epoch, so that clients can tell which response is newer.
    """
    live = image.brokers
    leader, code = partition.leader, ErrorCode.NONE
    if leader not in live:
        leader, code = -1, ErrorCode.LEADER_NOT_AVAILABLE
    elif live[leader].at(listener) is None:
        named = version >= FIRST_VERSION_WITH_LISTENERS
        leader, code = -1, ErrorCode.LISTENER_NOT_FOUND if named else ErrorCode.LEADER_NOT_AVAILABLE
    replicas, isr = list(partition.replicas), list(partition.isr)
    if version == 0:
        if code is ErrorCode.NONE and not (live.keys() >= set(replicas) and live.keys() >= set(isr)):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
        replicas, isr = [one for one in replicas if one in live], [one for one in isr if one in live]
    return MetadataResponsePartition(
        error_code=code,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=[one for one in partition.replicas if one not in live or one in partition.offline_replicas],
    )
