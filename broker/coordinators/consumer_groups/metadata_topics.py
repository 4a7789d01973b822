"""The topics of the metadata image as KIP-848 groups see them: which exist, and which partitions may be assigned.

Which partitions may be assigned can depend on the group: whoever withholds some sets `Assignable`. Nothing here goes
through all topics, but for groups that subscribe by expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from anabranch.broker.coordinators.consumer_groups.subscribed_topics import Topic

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage, MetadataCache, TopicImage

Assignable = Callable[[str, "TopicImage"], tuple[int, ...]]
"""(group, topic) -> the partitions that its members may get, ascending."""


def every_partition(_group_id: str, topic: TopicImage) -> tuple[int, ...]:
    """All that clients are shown."""
    return tuple(sorted(topic.partitions))


class MetadataTopics:
    """The topics, for all groups of a coordinator."""

    def __init__(
        self,
        metadata: MetadataCache,
        assignable: Assignable = every_partition,
        parents: Callable[[TopicImage], Mapping[int, int]] = lambda topic: {},
    ) -> None:
        """`parents` has the partitions that a resize has made, and what each split off."""
        self.assignable = assignable
        self.parents = parents
        self._metadata = metadata
        self._named: ClusterImage | None = None
        self._newest = 0

    @property
    def complete(self) -> bool:
        """Whether a controller has told of all topics: before that, one that is missing may exist all the same."""
        return self._metadata.image.complete

    def of(self, group_id: str, *, gated: bool = True) -> GroupTopics:
        """As one group sees them now; nothing is withheld from one whose members all hold gates (not `gated`)."""
        return GroupTopics(self, self._metadata.image, group_id, gated=gated)

    def newest(self, image: ClusterImage) -> int:
        """Grows when topics were made since it was asked for last."""
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
        """Grows whenever a topic is made."""
        return self._all.newest(self.image)

    def find(self, name: str) -> Topic | None:
        """A topic by its name, if it exists."""
        topic = self.image.topics.get(name)
        if topic is None:
            return None
        assignable = (self._all.assignable if self._gated else every_partition)(self._group_id, topic)
        return Topic(topic.topic_id, name, assignable, self._all.parents(topic))

    def name_of(self, topic_id: bytes) -> str | None:
        """The name behind a topic id, if it exists."""
        return self.image.names.get(topic_id)

    def names(self) -> Iterable[str]:
        """The names of all topics."""
        return self.image.topics
