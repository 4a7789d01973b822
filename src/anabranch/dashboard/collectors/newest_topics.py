"""Takes each topic from the node with the newest metadata.

A frozen node, or one that is cut off from ZooKeeper, keeps the topics that it knew: deleted ones, and former ones of a
name that was used again, which may have more generations. The active controller knows the ids of the present topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage, TopicImage
    from anabranch.cluster.cluster_view import ClusterView


def present_ids(cluster: ClusterView) -> dict[str, bytes] | None:
    """Return topic -> id, as the active controller has them; None if no node here is the active controller."""
    controllers = [node.controller for node in cluster.nodes.values() if node.controller is not None]
    active = max((one for one in controllers if one.state is not None), key=lambda one: one.epoch, default=None)
    if active is None or active.state is None:
        return None
    return {name: topic.body.topic_id for name, topic in active.state.topics.items()}


def newest_topics(images: Iterable[ClusterImage], present: Mapping[str, bytes] | None) -> dict[str, TopicImage]:
    """Return each topic in its newest form; without those that are not `present`, if it is known."""
    found: dict[str, TopicImage] = {}
    for image in images:
        for name, topic in image.topics.items():
            if present is not None and present.get(name) != topic.topic_id:
                continue
            other = found.get(name)
            if other is None or (other is not topic and _age(topic) > _age(other)):
                found[name] = topic
    return found


def _age(topic: TopicImage) -> tuple[int, int]:
    return topic.generation, sum(one.leader_epoch + one.partition_epoch for one in topic.partitions.values())
