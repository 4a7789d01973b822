"""Takes each topic from the node with the newest metadata.

A frozen node, or one that is cut off from ZooKeeper, keeps the topics and partitions that it knew: deleted ones, and
former ones of a name that was used again, which may have more generations. The active controller knows what is present.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from anabranch.dashboard.collectors.present_controller import present_controller

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage, TopicImage
    from anabranch.cluster.cluster_view import ClusterView
    from anabranch.controller.model import TopicBody


def present_topics(cluster: ClusterView) -> dict[str, TopicBody] | None:
    """Return each topic as the active controller has it; None if no node here is the active controller."""
    controller = present_controller(cluster)
    state = None if controller is None else controller.state
    return None if state is None else {name: topic.body for name, topic in state.topics.items()}


def newest_topics(images: Iterable[ClusterImage], present: Mapping[str, TopicBody] | None) -> dict[str, TopicImage]:
    """Return each topic in its newest form; without those that are not `present`, if it is known."""
    found: dict[str, TopicImage] = {}
    for image in images:
        for name, topic in image.topics.items():
            body = None if present is None else present.get(name)
            if present is not None and (body is None or body.topic_id != topic.topic_id):
                continue
            there = None if body is None else body.assignment
            other = found.get(name)
            if other is None or (other is not topic and _age(topic, there) > _age(other, there)):
                found[name] = topic
    return found


def _age(topic: TopicImage, there: Collection[int] | None) -> tuple[int, int, int]:
    """Compare the metadata of one topic; `there` are the partitions that it has now, if that is known."""
    kept = [one for index, one in topic.partitions.items() if there is None or index in there]
    epochs = sum(one.leader_epoch + one.partition_epoch for one in kept)
    return topic.generation, epochs, len(kept) - len(topic.partitions)
