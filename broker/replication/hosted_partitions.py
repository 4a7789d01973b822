"""The replicas that one broker hosts, indexed by topic and partition, by topic, and by topic id.

Adding and removing take constant time: a broker may have to stop thousands in a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.broker.replication.partition import Partition


class HostedPartitions:
    """`by_place`: (topic, index) -> partition, changed by `add` and `remove` only."""

    def __init__(self) -> None:
        self.by_place: dict[tuple[str, int], Partition] = {}
        self._of_topic: dict[str, dict[int, Partition]] = {}
        self._names: dict[bytes, str] = {}
        self._counts: Counter[bytes] = Counter()
        """Topic id -> number of hosted partitions."""

    def of_topic(self, topic: str) -> Collection[Partition]:
        """Return the partitions of one topic."""
        return self._of_topic.get(topic, {}).values()

    def has_topic(self, topic: str, topic_id: bytes) -> bool:
        """Whether a partition of the topic with this name and id is here."""
        return any(partition.topic_id == topic_id for partition in self.of_topic(topic))

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name for a topic id that has a partition here."""
        return self._names.get(topic_id)

    def add(self, partition: Partition) -> None:
        """Add a partition."""
        self.by_place[partition.topic, partition.index] = partition
        self._of_topic.setdefault(partition.topic, {})[partition.index] = partition
        self._counts[partition.topic_id] += 1
        if any(partition.topic_id):
            self._names[partition.topic_id] = partition.topic

    def remove(self, partition: Partition) -> None:
        """Remove a partition, and with the topic's last one the topic's id."""
        topic, topic_id = partition.topic, partition.topic_id
        del self.by_place[topic, partition.index]
        del self._of_topic[topic][partition.index]
        if not self._of_topic[topic]:
            del self._of_topic[topic]
        self._counts[topic_id] -= 1
        if not self._counts[topic_id]:
            del self._counts[topic_id]
            self._names.pop(topic_id, None)
