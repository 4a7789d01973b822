"""The topics of the metadata image for KIP-848 groups: which exist, and which partitions may be assigned.

`Assignable` may withhold partitions from a group. No method iterates over all topics, except for groups that subscribe
by regular expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from anabranch.broker.coordinators.consumer_groups.subscribed_topics import Topic
from anabranch.protocol import linear_hashing

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage, MetadataCache, TopicImage

Assignable = Callable[[str, "TopicImage"], tuple[int, ...]]
"""(group, topic) -> the partitions that may be assigned to its members, ascending."""


def every_partition(_group_id: str, topic: TopicImage) -> tuple[int, ...]:
    """Return all partitions of a topic."""
    return tuple(sorted(topic.partitions))


def added_partitions(topic: TopicImage) -> Mapping[int, int]:
    """Return the partitions that resizes have added, each with the one that it split off from."""
    counts = [count for _, count in topic.history]
    added = (index for before, after in pairwise(counts) for index in range(before, after))
    return {index: linear_hashing.parent(index, topic.base) for index in added if index in topic.partitions}


class MetadataTopics:
    """The topics, for all groups of a coordinator."""

    def __init__(
        self,
        metadata: MetadataCache,
        assignable: Assignable = every_partition,
        parents: Callable[[TopicImage], Mapping[int, int]] = lambda topic: {},
    ) -> None:
        """`parents` returns the child partitions of a topic, each with its parent."""
        self.assignable = assignable
        self.parents = parents
        self._metadata = metadata
        self._named: ClusterImage | None = None
        self._newest = 0

    @property
    def complete(self) -> bool:
        """Whether the metadata of all topics has arrived; before that, a missing topic may exist."""
        return self._metadata.image.complete

    def of(self, group_id: str, *, gated: bool = True) -> GroupTopics:
        """Return the current topics for one group; nothing is withheld if all its members hold gates (not `gated`)."""
        return GroupTopics(self, self._metadata.image, group_id, gated=gated)

    def newest(self, image: ClusterImage) -> int:
        """Return a number that grows when topics were created since the last call."""
        if image is not self._named:
            before = () if self._named is None else self._named.topics.keys()
            self._newest += not image.topics.keys() <= set(before)
            self._named = image
        return self._newest


class GroupTopics:
    """The topics of one image for one group."""

    def __init__(self, all_topics: MetadataTopics, image: ClusterImage, group_id: str, *, gated: bool) -> None:
        self.image = image
        self._all = all_topics
        self._group_id = group_id
        self._gated = gated

    @property
    def newest_topic(self) -> int:
        """A number that grows when topics are created."""
        return self._all.newest(self.image)

    def find(self, name: str) -> Topic | None:
        """Return a topic by name, if it exists."""
        topic = self.image.topics.get(name)
        if topic is None:
            return None
        assignable = (self._all.assignable if self._gated else every_partition)(self._group_id, topic)
        return Topic(topic.topic_id, name, assignable, self._all.parents(topic))

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic id, if the topic exists."""
        return self.image.names.get(topic_id)

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self.image.topics
