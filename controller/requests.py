"""Batches the requests of one event for each broker.

Flushed in Kafka's order (`ControllerBrokerRequestBatch`): LeaderAndIsr, UpdateMetadata, StopReplica. Every partition in
a LeaderAndIsr also goes to all brokers in UpdateMetadata. Each request carries the controller epoch, and the broker
epoch of the incarnation it is meant for.

A broker decodes and applies a request in few steps, so orders about many partitions are several requests, one after the
other in the broker's queue. Each row of LeaderAndIsr and StopReplica has its own leader epoch, and each topic of
UpdateMetadata its own generation: a topic is never split there. A full update is one request, because a broker forgets
what it does not name.

The generation in a LeaderAndIsr is the *partition's* committed one (R2, K307): a topic that is being resized does not
pass its new generation to a partition whose own bump is not written yet. Metadata leaves out the partitions that a
planned growth has created but not published (R12); the clamping of bumped epochs is done where Metadata is answered.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from anabranch.controller import effects
from anabranch.controller.effects import Effect
from anabranch.controller.model import Partition, ReplicaPhase, Topic, TopicPartition
from anabranch.controller.state import ClusterState
from anabranch.protocol.apis import leader_and_isr as lai
from anabranch.protocol.apis import stop_replica as stop
from anabranch.protocol.apis import update_metadata as meta
from anabranch.protocol.apis.common_structs import GenerationStart, ReshardStep

LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2
FULL_UPDATE = 2
PARTITIONS_PER_REQUEST: Final = 1000
"""About how many partitions a request names: 3 ms to decode."""
SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


Order = TypeVar("Order")


class RequestBatch:
    """The requests of one decision, per broker."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._leads: dict[int, dict[TopicPartition, bool]] = {}
        self._stops: dict[int, dict[TopicPartition, bool]] = {}
        self._updates: dict[int, dict[TopicPartition, None]] = {}
        self._full: set[int] = set()

    def add_leadership(self, partition: TopicPartition, *, is_new: bool = False, new_on: Collection[int] = ()) -> None:
        """Add LeaderAndIsr with the committed state for all reachable replicas, and UpdateMetadata for all brokers.

        `new_on` are replicas that are new although the partition is not.
        """
        for broker in self._state.online_replicas(partition):
            self._leads.setdefault(broker, {})[partition] = is_new or broker in new_on
        self.add_metadata(partition)

    def remind(self, partition: TopicPartition, broker: int) -> None:
        """Add LeaderAndIsr with the committed state for one replica that may have missed it."""
        self._leads.setdefault(broker, {})[partition] = False

    def add_metadata(self, partition: TopicPartition, brokers: Iterable[int] | None = None) -> None:
        """Add UpdateMetadata with the committed state for these brokers (all if None)."""
        for broker in self._state.brokers if brokers is None else brokers:
            self._updates.setdefault(broker, {})[partition] = None

    def add_brokers(self, brokers: Iterable[int] | None = None) -> None:
        """Add UpdateMetadata with the live brokers, alone or with partitions."""
        for broker in self._state.brokers if brokers is None else brokers:
            self._updates.setdefault(broker, {})

    def add_everything(self, brokers: Iterable[int] | None = None) -> None:
        """Add UpdateMetadata with all partitions, as a full update: the receiver forgets topics that are not listed."""
        for broker in list(self._state.brokers) if brokers is None else brokers:
            self._full.add(broker)
            self._updates.setdefault(broker, {}).update(dict.fromkeys(self._state.all_partitions()))

    def stop(self, partition: TopicPartition, brokers: Iterable[int], *, delete: bool) -> None:
        """Add StopReplica for these replicas."""
        for broker in brokers:
            if broker in self._state.brokers:
                known = self._stops.setdefault(broker, {})
                known[partition] = delete or known.get(partition, False)

    def flush(self) -> list[Effect]:
        """Return the requests in sending order."""
        found: list[Effect] = []
        leaderships = Leaderships(self._state)
        for broker, leads in sorted(self._leads.items()):
            for part in parts_of(leads):
                request = leader_and_isr_request(self._state, broker, part, leaderships)
                if request.topic_states:
                    found.append(self._send(broker, request))
        topics: dict[tuple[TopicPartition, ...], list[meta.UpdateMetadataTopicState]] = {}
        for broker, updated in sorted(self._updates.items()):
            same = tuple(updated)
            if same not in topics:  # most often all brokers receive the same topics
                topics[same] = update_metadata_topics(self._state, same)
            full = broker in self._full
            for rows in [topics[same]] if full else topic_parts(topics[same]):
                found.append(self._send(broker, update_metadata_request(self._state, broker, rows, full)))
        for broker, stops in sorted(self._stops.items()):
            found += [self._send(broker, stop_replica_request(self._state, broker, part)) for part in parts_of(stops)]
        return found

    def _send(self, broker: int, request: object) -> Effect:
        return effects.SendToBroker(broker, self._state.brokers[broker].epoch, request)


def parts_of(orders: Mapping[TopicPartition, Order]) -> Iterator[dict[TopicPartition, Order]]:
    """Split what one broker is to do into requests, in order."""
    remaining = iter(orders.items())
    while part := dict(itertools.islice(remaining, PARTITIONS_PER_REQUEST)):
        yield part


def topic_parts(topics: list[meta.UpdateMetadataTopicState]) -> Iterator[list[meta.UpdateMetadataTopicState]]:
    """Split whole topics into requests, in order; without topics there is one, for the live brokers."""
    part: list[meta.UpdateMetadataTopicState] = []
    size = 0
    for topic in topics:
        if part and size + len(topic.partition_states) > PARTITIONS_PER_REQUEST:
            yield part
            part, size = [], 0
        part.append(topic)
        size += len(topic.partition_states)
    yield part


class Leaderships:
    """The rows of LeaderAndIsr requests; each is built once for all brokers."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._rows: dict[tuple[TopicPartition, bool], lai.LeaderAndIsrPartitionState] = {}

    def row(self, partition: TopicPartition, is_new: bool) -> lai.LeaderAndIsrPartitionState:
        """Return the row of a partition that has a state."""
        row = self._rows.get((partition, is_new))
        if row is None:
            topic, committed = self._state.topics[partition.topic], self._state.partitions[partition]
            row = self._rows[partition, is_new] = _leadership(topic, partition.partition, committed, is_new)
        return row


def leader_and_isr_request(
    state: ClusterState, broker: int, leads: dict[TopicPartition, bool], leaderships: Leaderships
) -> lai.LeaderAndIsrRequest:
    """Build one broker's LeaderAndIsr."""
    topics: dict[str, lai.LeaderAndIsrTopicState] = {}
    leaders: set[int] = set()
    for partition, is_new in leads.items():
        committed, topic = state.partitions.get(partition), state.topics.get(partition.topic)
        if committed is None or topic is None:
            continue
        if being_removed(topic, partition.partition, committed):
            continue  # after a restart, a leader no longer knows that nothing may follow the tombstone's offset
        if partition.topic not in topics:
            topics[partition.topic] = lai.LeaderAndIsrTopicState(
                topic_name=partition.topic,
                topic_id=topic.body.topic_id,
                partition_states=[],
                undeleted_partition_count=topic.body.undeleted_partition_count,
                has_generations=topic.body.has_generations,
            )
        topics[partition.topic].partition_states.append(leaderships.row(partition, is_new))
        leaders.add(committed.state.leader)
    return lai.LeaderAndIsrRequest(
        controller_id=state.settings.node_id,
        controller_epoch=state.controller_epoch,
        broker_epoch=state.brokers[broker].epoch,
        topic_states=list(topics.values()),
        live_leaders=[
            lai.LeaderAndIsrLiveLeader(broker_id=leader, host_name=endpoint.host, port=endpoint.port)
            for leader in sorted(leaders)
            if leader in state.brokers
            and (endpoint := state.brokers[leader].endpoint(state.settings.inter_broker_listener)) is not None
        ],
    )


def _leadership(topic: Topic, index: int, committed: Partition, is_new: bool) -> lai.LeaderAndIsrPartitionState:
    leadership = committed.state
    retired = topic.body.retired.get(index)
    return lai.LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=leadership.controller_epoch,
        leader=leadership.leader,
        leader_epoch=leadership.leader_epoch,
        isr=list(leadership.isr),
        partition_epoch=committed.epoch,
        replicas=list(topic.body.assignment[index]),
        adding_replicas=list(topic.body.adding_replicas.get(index, ())),
        removing_replicas=list(topic.body.removing_replicas.get(index, ())),
        is_new=is_new,
        leader_recovery_state=leadership.leader_recovery_state,
        generation=leadership.generation,
        gen_start=[GenerationStart(generation=g, leader_epoch=epoch) for g, epoch in leadership.gen_start],
        marked_for_deletion=leadership.sealed,
        log_start_offset=-1 if retired is None else retired.end_offset,
        first_leader_epoch=-1 if retired is None else retired.leader_epoch + 1,
    )


def update_metadata_topics(
    state: ClusterState, updated: Iterable[TopicPartition]
) -> list[meta.UpdateMetadataTopicState]:
    """Build the rows of UpdateMetadata for these partitions; they are the same for every broker."""
    topics: dict[str, meta.UpdateMetadataTopicState] = {}
    for partition in updated:
        topic = state.topics.get(partition.topic)
        described = None if topic is None else _metadata(state, topic, partition)
        if topic is None or described is None:
            continue
        if partition.topic not in topics:
            topics[partition.topic] = _topic_metadata(state, topic)
        topics[partition.topic].partition_states.append(described)
    return list(topics.values())


def update_metadata_request(
    state: ClusterState, broker: int, topics: list[meta.UpdateMetadataTopicState], full: bool
) -> meta.UpdateMetadataRequest:
    """Build one broker's UpdateMetadata: these topics and always all live brokers."""
    return meta.UpdateMetadataRequest(
        controller_id=state.settings.node_id,
        type=FULL_UPDATE if full else 0,
        controller_epoch=state.controller_epoch,
        broker_epoch=state.brokers[broker].epoch,
        topic_states=topics,
        live_brokers=[_live_broker(state, one) for one in sorted(state.brokers)],
    )


def _topic_metadata(state: ClusterState, topic: Topic) -> meta.UpdateMetadataTopicState:
    body = topic.body
    return meta.UpdateMetadataTopicState(
        topic_name=topic.name,
        topic_id=body.topic_id,
        partition_states=[],
        undeleted_partition_count=body.undeleted_partition_count,
        generation=body.generation,
        initial_partition_count=body.initial_partition_count,
        history=[ReshardStep(generation=generation, count=count) for generation, count in body.history],
        base=body.base if topic.ordered else -1,
        ordered_delivery=topic.ordered and topic.gated,
        min_insync_replicas=min_insync_replicas(state, topic),
        has_generations=body.has_generations,
    )


def min_insync_replicas(state: ClusterState, topic: Topic) -> int:
    """The topic's own setting, or the cluster's default."""
    text = topic.config.get("min.insync.replicas", "")
    return int(text) if text.isdecimal() else state.settings.min_insync_replicas


def _metadata(state: ClusterState, topic: Topic, partition: TopicPartition) -> meta.UpdateMetadataPartitionState | None:
    index = partition.partition
    committed = state.partitions.get(partition)
    replicas = topic.body.assignment.get(index, ())
    if committed is None or is_unpublished(topic, index, committed):
        return None
    leadership = committed.state
    gone = topic.name in state.deleting or being_removed(topic, index, committed)
    return meta.UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=leadership.controller_epoch,
        leader=LEADER_DURING_DELETE if gone else leadership.leader,
        leader_epoch=0 if gone else leadership.leader_epoch,
        isr=list(leadership.isr),
        zk_version=committed.epoch,
        replicas=list(replicas),
        offline_replicas=[replica for replica in replicas if not _online(state, partition, replica)],
        generation=leadership.generation,
        gen_start=[GenerationStart(generation=g, leader_epoch=epoch) for g, epoch in leadership.gen_start],
        marked_for_deletion=index >= topic.body.undeleted_partition_count,
    )


def is_unpublished(topic: Topic, index: int, committed: Partition) -> bool:
    """Whether an unpublished growth created this partition, so clients may not see it (R4, R12)."""
    plan = topic.body.plan
    if plan is None or committed.state.generation < plan.generation or index < plan.before:
        return False
    retired = topic.body.retired.get(index)
    retired_epoch = -1 if retired is None else retired.leader_epoch
    return all(g >= plan.generation or epoch <= retired_epoch for g, epoch in committed.state.gen_start)


def being_removed(topic: Topic, index: int, committed: Partition) -> bool:
    """Whether the tombstone of this incarnation is written: its removal only has to be finished (R13)."""
    retired = topic.body.retired.get(index)
    return (
        retired is not None
        and index >= topic.body.undeleted_partition_count
        and committed.state.sealed
        and retired.leader_epoch >= committed.state.leader_epoch
    )


def _online(state: ClusterState, partition: TopicPartition, replica: int) -> bool:
    return replica in state.brokers and state.replica_phase(partition, replica) is not ReplicaPhase.OFFLINE


def _live_broker(state: ClusterState, broker_id: int) -> meta.UpdateMetadataBroker:
    broker = state.brokers[broker_id]
    return meta.UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            meta.UpdateMetadataEndpoint(
                port=one.port,
                host=one.host,
                listener=one.listener,
                security_protocol=SECURITY_PROTOCOL_IDS.get(one.security_protocol, 0),
            )
            for one in broker.endpoints
        ],
        rack=broker.rack,
        broker_epoch=broker.epoch,
    )


def stop_epoch(state: ClusterState, broker: int, partition: TopicPartition, delete: bool) -> int:
    """Return the leader epoch of a StopReplica: that of the state that no longer includes the replica.

    If the whole partition is removed there is no such state, and the request applies whatever epoch the replica knows.
    The same applies to a replica of a deleted topic of the same name.
    """
    committed, topic = state.partitions.get(partition), state.topics.get(partition.topic)
    if committed is None or topic is None:
        return EPOCH_DURING_DELETE if delete else -1
    goes = partition.topic in state.deleting or being_removed(topic, partition.partition, committed)
    goes = goes or broker in state.assignment(partition)
    return EPOCH_DURING_DELETE if delete and goes else committed.state.leader_epoch


def stop_replica_request(
    state: ClusterState, broker: int, stops: dict[TopicPartition, bool]
) -> stop.StopReplicaRequest:
    """Build one broker's StopReplica."""
    topics: dict[str, stop.StopReplicaTopicState] = {}
    for partition, delete in stops.items():
        topics.setdefault(
            partition.topic, stop.StopReplicaTopicState(topic_name=partition.topic, partition_states=[])
        ).partition_states.append(
            stop.StopReplicaPartitionState(
                partition_index=partition.partition,
                leader_epoch=stop_epoch(state, broker, partition, delete),
                delete_partition=delete,
            )
        )
    return stop.StopReplicaRequest(
        controller_id=state.settings.node_id,
        controller_epoch=state.controller_epoch,
        broker_epoch=state.brokers[broker].epoch,
        topic_states=list(topics.values()),
    )
