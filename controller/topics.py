"""The lifecycle of a topic: discovery, completion of a stock tool's znode, deletion.

Deletion follows Kafka's TopicDeletionManager: the topic disappears from clients' metadata at once, every replica is
told to delete its log, and the znodes are removed when all have confirmed. A replica on a dead broker delays deletion
until its return.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from anabranch.controller import effects, partitions, replicas
from anabranch.controller.effects import Effect
from anabranch.controller.events import TopicSnapshot
from anabranch.controller.model import PartitionPhase, Topic, TopicBody, TopicPartition
from anabranch.controller.requests import RequestBatch
from anabranch.controller.state import ClusterState
from anabranch.protocol.linear_hashing import base_of
from anabranch.protocol.wire import ZERO_UUID


def load(state: ClusterState, snapshot: TopicSnapshot) -> None:
    """Load a topic from ZooKeeper."""
    topic = snapshot.topic
    state.put_topic(replace(topic, body=complete_body(topic.body, topic.body.topic_id)))
    for partition in state.partitions_of(topic.name):
        committed = snapshot.partitions.get(partition.partition)
        if committed is None:
            continue
        partitions.adopt(state, partition, committed)
        for replica in state.assignment(partition):
            replicas.set_online(state, partition, replica)
    partitions.add_new(state, topic.name)


def complete_body(body: TopicBody, topic_id: bytes) -> TopicBody:
    """Return a body with the fields that a stock tool does not write: a first generation of all its partitions."""
    count = len(body.assignment)
    if not count:
        return body
    initial = body.initial_partition_count if body.initial_partition_count > 0 else count
    undeleted = body.undeleted_partition_count if body.undeleted_partition_count > 0 else count
    return replace(
        body,
        topic_id=topic_id,
        initial_partition_count=initial,
        undeleted_partition_count=undeleted,
        base=body.base if body.base > 0 else base_of(initial),
        history=body.history or ((body.generation, undeleted),),
    )


def complete(snapshot: TopicSnapshot) -> list[Effect]:
    """Write the fields that a stock tool left out of a topic's znode, if any."""
    topic = snapshot.topic
    topic_id = topic.body.topic_id if topic.body.topic_id != ZERO_UUID else snapshot.fresh_id
    body = complete_body(topic.body, topic_id)
    return [] if body == topic.body else [effects.WriteTopic(topic.name, body, topic.version, "complete")]


def on_discovered(state: ClusterState, found: Iterable[TopicSnapshot]) -> list[Effect]:
    """Add new topics: complete their znodes if needed; `Reconcile` creates their partitions."""
    decided: list[Effect] = []
    for snapshot in found:
        load(state, snapshot)
        name, count = snapshot.topic.name, len(snapshot.topic.body.assignment)
        decided += complete(snapshot)
        decided.append(effects.PublishEvent("topic created", {"topic": name, "partitions": count}))
    return decided


def mark_for_deletion(state: ClusterState, names: Iterable[str]) -> list[Effect]:
    """Handle requests to delete topics: drop invalid ones, start the others."""
    decided: list[Effect] = []
    for name in sorted(names):
        if name not in state.topics or not state.settings.delete_topic_enable:
            decided.append(effects.RemoveDeletion(name))
        elif name not in state.deleting:
            decided += begin_deletion(state, name)
    return decided


def begin_deletion(state: ClusterState, name: str) -> list[Effect]:
    """Hide the topic from clients, and tell every reachable replica to delete its log."""
    state.delete_from_now_on(name)
    batch = RequestBatch(state)
    for partition in state.partitions_of(name):
        if state.phase(partition) is not PartitionPhase.OFFLINE:
            if state.phase(partition) is PartitionPhase.NON_EXISTENT:
                partitions.move(state, partition, PartitionPhase.NEW)
            partitions.move(state, partition, PartitionPhase.OFFLINE)
        batch.add_metadata(partition)
    return [*batch.flush(), *continue_deletion(state, name), effects.PublishEvent("topic deletion", {"topic": name})]


def continue_deletion(state: ClusterState, name: str) -> list[Effect]:
    """Start with the replicas not yet started; remove the znodes when every replica is done."""
    state.deletable.discard(name)
    batch, finished = RequestBatch(state), True
    for partition in state.partitions_of(name):
        for replica in state.assignment(partition):
            phase = state.replica_phase(partition, replica)
            if phase is replicas.SUCCESSFUL:
                continue
            finished = False
            if phase is replicas.STARTED:
                continue
            _prepare(state, partition, replica)
            if replica in state.brokers:
                replicas.move(state, partition, replica, replicas.STARTED)
                batch.stop(partition, [replica], delete=True)
            else:
                replicas.move(state, partition, replica, replicas.INELIGIBLE)
    return [effects.RemoveTopic(name)] if finished else batch.flush()


def all_stopped(state: ClusterState, name: str) -> bool:
    """Whether every replica of a topic has confirmed its deletion."""
    return all(
        state.replica_phase(partition, replica) is replicas.SUCCESSFUL
        for partition in state.partitions_of(name)
        for replica in state.assignment(partition)
    )


def lose_replicas(state: ClusterState, gone: frozenset[int]) -> None:
    """Handle failed brokers: their pending deletions have unknown outcomes, and are repeated after their return."""
    for name in sorted(state.deleting):
        for partition in state.partitions_of(name):
            for replica in gone:
                if state.replica_phase(partition, replica) is replicas.STARTED:
                    replicas.move(state, partition, replica, replicas.INELIGIBLE)


def replica_stopped(state: ClusterState, partition: TopicPartition, replica: int, *, failed: bool) -> None:
    """Handle a replica's response to StopReplica(delete)."""
    if state.replica_phase(partition, replica) is replicas.STARTED:
        replicas.move(state, partition, replica, replicas.INELIGIBLE if failed else replicas.SUCCESSFUL)
        if failed:
            state.deletable.add(partition.topic)


def on_vanished(state: ClusterState, names: Iterable[str]) -> list[Effect]:
    """Handle topics whose znodes were removed directly: clients and replicas must forget them too."""
    decided: list[Effect] = []
    for name in sorted(names):
        state.delete_from_now_on(name)
        batch = RequestBatch(state)
        for partition in state.partitions_of(name):
            batch.add_metadata(partition)
            batch.stop(partition, state.online_replicas(partition), delete=True)
        decided += batch.flush()
        state.forget_topic(name)
    return decided


def on_changed(state: ClusterState, topic: Topic) -> list[Effect]:
    """Adopt a changed znode or configuration of a known topic, unless this controller wrote it.

    Partitions that a stock tool added to an unordered topic are created; an ordered one changes by plan only (R3), and
    its additional indices stay without a state until a plan includes them.
    """
    before = state.topics.get(topic.name)
    if before is None or topic.name in state.deleting:
        return []
    body = topic.body
    if topic.version > before.version and not topic.ordered and len(body.assignment) > len(before.body.assignment):
        count = len(body.assignment)
        body = replace(body, undeleted_partition_count=count, history=((body.generation, count),))
    newer = topic if topic.version >= before.version else replace(topic, body=before.body, version=before.version)
    state.put_topic(newer)
    if not topic.ordered:
        partitions.add_new(state, topic.name)
    decided: list[Effect] = []
    if body != topic.body:
        decided.append(effects.WriteTopic(topic.name, body, topic.version, "complete"))
    if (before.config, before.body) != (newer.config, newer.body):
        batch = RequestBatch(state)
        for partition in state.partitions_of(topic.name):
            batch.add_metadata(partition)
        decided += batch.flush()
    return decided


def _prepare(state: ClusterState, partition: TopicPartition, replica: int) -> None:
    phase = state.replica_phase(partition, replica)
    if phase is replicas.NON_EXISTENT:
        replicas.move(state, partition, replica, replicas.NEW)
    if phase is not replicas.OFFLINE:
        replicas.move(state, partition, replica, replicas.OFFLINE)
