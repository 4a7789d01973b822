"""Marks topics that hold batches with generations, before the first such batch is stored (R16).

A producer with generations requires order, so from then on a resize refuses producers without them. The leader that
receives a topic's first batch with a generation requests the mark with AlterPartition, and appends nothing of the batch
before the response. One conditional write puts the mark into the topic's znode, and nothing removes it: a controller
that plans a resize afterwards knows it, and the LeaderAndIsr with the new generation carries it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from anabranch.controller import effects
from anabranch.controller.effects import Effect
from anabranch.controller.requests import RequestBatch
from anabranch.controller.state import ClusterState

MARK: Final = "mark"


def write(state: ClusterState, names: Iterable[str]) -> list[Effect]:
    """Mark those of these topics that exist, are not being deleted, and have no mark yet."""
    topics = [state.topics[name] for name in names if name in state.topics and name not in state.deleting]
    return [
        effects.WriteTopic(topic.name, replace(topic.body, has_generations=True), topic.version, MARK)
        for topic in topics
        if not topic.body.has_generations
    ]


def on_written(state: ClusterState, name: str) -> list[Effect]:
    """Send all brokers a committed mark with one partition: a topic's mark applies to all of them."""
    batch = RequestBatch(state)
    for partition in state.partitions_of(name):
        if partition in state.partitions:
            batch.add_metadata(partition)
            break
    return [*batch.flush(), effects.PublishEvent("topic ordered", {"topic": name})]


def is_marked(state: ClusterState, name: str, topic_id: bytes) -> bool:
    """Whether the topic of this name, and of this id unless that is zero, has the mark."""
    topic = state.topics.get(name)
    if topic is None or name in state.deleting or (any(topic_id) and topic.body.topic_id != topic_id):
        return False
    return topic.body.has_generations
