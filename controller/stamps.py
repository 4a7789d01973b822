"""Which topics hold batches stamped with generations: a fact of the topic, written down before the first one (R16).

Somebody who stamps batches asks for order, so from then on a resize keeps producers without generations out. The leader
that meets the first stamped batch of a topic asks with AlterPartition and appends nothing of it before the answer. The
fact stands in the topic's znode, in one conditional write, and is never taken back: a controller that plans a resize
afterwards knows it, and the LeaderAndIsr that takes a leader to the new generation says it.
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
    """Write it down for those of these topics that exist, are to stay, and have nothing written yet."""
    topics = [state.topics[name] for name in names if name in state.topics and name not in state.deleting]
    return [
        effects.WriteTopic(topic.name, replace(topic.body, stamped=True), topic.version, STAMP)
        for topic in topics
        if not topic.body.stamped
    ]


def written(state: ClusterState, name: str) -> list[Effect]:
    """All brokers learn it; what an UpdateMetadata says of a topic holds for partitions that it leaves out, too."""
    batch = RequestBatch(state)
    for partition in state.partitions_of(name):
        if partition in state.partitions:
            batch.tell(partition)
            break
    return [*batch.flush(), effects.Announce("topic ordered", {"topic": name})]


def stands(state: ClusterState, name: str, topic_id: bytes) -> bool:
    """Whether it is written down for the topic of this name, and of this id if one is named."""
    topic = state.topics.get(name)
    if topic is None or name in state.deleting or (any(topic_id) and topic.body.topic_id != topic_id):
        return False
    return topic.body.stamped
