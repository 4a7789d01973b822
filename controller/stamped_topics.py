"""The mark of topics that hold batches stamped with generations, written before the first such batch is stored (R16).

A producer that stamps its batches asks for order, so from then on a resize keeps producers without generations out. The
leader that receives the first stamped batch of a topic asks the controller for the mark with AlterPartition, and
appends nothing of the batch before the answer. The mark stands in the topic's znode, in one conditional write, and is
never taken back: a controller that plans a resize afterwards knows it, and the LeaderAndIsr that takes a leader to the
new generation carries it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from anabranch.controller import effects
from anabranch.controller.effects import Effect
from anabranch.controller.requests import RequestBatch
from anabranch.controller.state import ClusterState

STAMP: Final = "stamp"


def write(state: ClusterState, names: Iterable[str]) -> list[Effect]:
    """Mark those of these topics that exist, are not being deleted, and have no mark yet."""
    topics = [state.topics[name] for name in names if name in state.topics and name not in state.deleting]
    return [
        effects.WriteTopic(topic.name, replace(topic.body, stamped=True), topic.version, STAMP)
        for topic in topics
        if not topic.body.stamped
    ]


def written(state: ClusterState, name: str) -> list[Effect]:
    """Tell all brokers of a mark that is committed, with one partition: the mark of a topic holds for all of them."""
    batch = RequestBatch(state)
    for partition in state.partitions_of(name):
        if partition in state.partitions:
            batch.add_metadata(partition)
            break
    return [*batch.flush(), effects.PublishEvent("topic ordered", {"topic": name})]


def stands(state: ClusterState, name: str, topic_id: bytes) -> bool:
    """Whether the topic of this name, and of this id unless that is zero, has the mark."""
    topic = state.topics.get(name)
    if topic is None or name in state.deleting or (any(topic_id) and topic.body.topic_id != topic_id):
        return False
    return topic.body.stamped
