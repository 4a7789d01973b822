"""Reassigns replicas while a partition serves (KIP-455): start, let the new replicas catch up, complete.

    begin      one transaction: the topic's znode names old and new replicas together with which are added and which
               leave, and the state gets a leader epoch in which the leader learns of them
    progress   added replicas fetch and join the ISR as any other does; everybody sees how far it is
    complete   as soon as all that are to stay are in sync, one transaction: the znode names them alone, the ISR is
               theirs, one of them leads; the others are told to delete their logs

Cancelling is moving back to where the replicas were, and a new target replaces a running one: both are a begin. What
runs stands in the topic's znode, and the two writes are whole, so a new controller has nothing to repair: it only asks
`advance` for every topic.

Invariant: no begin takes the last live in-sync replica away. Where a cancelled or replaced target would leave no
replica in sync, those that are in sync stay until the new target is (Kafka drops them, and with them what they alone
have). Resizes and moves exclude each other per topic: a plan counts on the replicas it was made with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from anabranch.controller import effects, elections, partitions, replicas, topic_size
from anabranch.controller.effects import Effect, PartitionWrite, WriteTopic
from anabranch.controller.events import ReassignmentRequested, ReassignmentsListed, ReassignmentStarted, TopicWritten
from anabranch.controller.model import LeaderAndIsr, Partition, Topic, TopicBody, TopicPartition
from anabranch.controller.requests import RequestBatch
from anabranch.controller.state import ClusterState
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.session import Set
from anabranch.controller.zk.sizes import REQUEST_BYTES_MAX, ZNODE_BYTES_MAX, bytes_of, pieces
from anabranch.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from anabranch.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import value

BEGIN: Final = "reassign:after-begin"
COMPLETE: Final = "reassign:after-complete"
MOVES_AT_ONCE: Final = 500
"""The number of partitions whose states one transaction may hold."""
MOVES_BYTES: Final = REQUEST_BYTES_MAX - ZNODE_BYTES_MAX - 4096
"""Their size limit: a ZooKeeper request less the largest topic znode."""


def ask(state: ClusterState, event: ReassignmentRequested) -> list[Effect]:
    """Start the reassignments that are possible; the response follows the writes."""
    targets: dict[TopicPartition, tuple[int, ...]] = {}
    refused: dict[TopicPartition, tuple[int, str]] = {}
    for topic in event.request.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            try:
                targets[partition] = check_target(state, partition, row.replicas)
                if not event.request.allow_replication_factor_change:
                    check_size(state, partition, targets[partition])
            except KafkaError as error:
                refused[partition] = (error.code, error.message)
    decided: list[Effect] = []
    for name in sorted({partition.topic for partition in targets}):
        topic_targets = {one.partition: target for one, target in targets.items() if one.topic == name}
        try:
            decided += begin(state, state.topics[name], topic_targets)
        except KafkaError as error:
            for index in topic_targets:
                del targets[TopicPartition(name, index)]
                refused[TopicPartition(name, index)] = (error.code, error.message)
    requested = tuple(
        (topic.name, tuple(row.partition_index for row in topic.partitions)) for topic in event.request.topics
    )
    return [*decided, effects.Post(ReassignmentStarted(event.token, targets, refused, requested))]


def check_size(state: ClusterState, partition: TopicPartition, target: Sequence[int]) -> None:
    """Raise INVALID_REPLICATION_FACTOR if the number of replicas would change."""
    now = state.topics[partition.topic].body.target(partition.partition)
    if len(now) != len(target):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(now)} to {len(target)}",
        )


def check_target(state: ClusterState, partition: TopicPartition, requested: Sequence[int] | None) -> tuple[int, ...]:
    """Return the partition's target replicas; None restores the original ones. Raises KafkaError."""
    topic, index = state.topics.get(partition.topic), partition.partition
    known = topic is not None and topic.name not in state.deleting and index in topic.body.assignment
    if topic is None or not known or partitions.removed_soon(state, partition):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    body = topic.body
    if body.plan is not None:
        raise KafkaError(
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            f"The topic is being resized to {body.plan.after} partitions; try again after the resize.",
        )
    if requested is None:
        if not partitions.moving(state, partition):
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No reassignment of this partition is running.")
        return body.origin(index)
    problem = ""
    coming = sorted(set(requested) - set(body.assignment[index]) - state.live)
    if not requested:
        problem = "The list of replicas is empty."
    elif len(set(requested)) != len(requested):
        problem = f"The list of replicas has duplicates: {list(requested)}."
    elif min(requested) < 0:
        problem = f"Broker ids must not be negative: {list(requested)}."
    elif coming:
        problem = f"Replicas cannot be added on brokers that are not alive: {coming}."
    if problem:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return tuple(requested)


def begin(state: ClusterState, topic: Topic, targets: Mapping[int, tuple[int, ...]]) -> list[Effect]:
    """Return the writes that start reassignments in one topic; none for partitions already on target.

    Raises KafkaError if the topic's znode would be too large.
    """
    decided: list[Effect] = []
    body, version = topic.body, topic.version
    moves: dict[int, Move] = {}
    writes: list[PartitionWrite] = []
    for index, target in sorted(targets.items()):
        if body.target(index) == target:
            continue
        partition = TopicPartition(topic.name, index)
        committed = state.partitions.get(partition)
        if committed is None:  # no replica has a log yet
            moves[index] = Move(target)
            continue
        kept = last_in_sync(state, committed, {*target, *body.origin(index)})
        moves[index] = under_way(body, index, target, kept=kept)
        writes.append(PartitionWrite(partition, final_state(state, committed, moves[index].replicas), committed.epoch))
    topic_size.check(topic.name, with_moves(body, moves))
    waiting = {write.partition.partition: write for write in writes}
    for some in at_once(moves, waiting):
        body = with_moves(body, {index: moves[index] for index in some})
        states = tuple(waiting[index] for index in some if index in waiting)
        decided.append(WriteTopic(topic.name, body, version, BEGIN, states=states))
        version += 1
    return decided


def at_once(indices: Iterable[int], writes: Mapping[int, PartitionWrite]) -> Iterator[list[int]]:
    """Split partitions into transactions that fit beside the topic's znode."""

    def size_of(index: int) -> int:
        if index not in writes:
            return 0
        state = znodes.encode_partition_state(writes[index].state)
        return bytes_of(Set(paths.partition_state(*writes[index].partition), state))

    return pieces(indices, size_of, count_max=MOVES_AT_ONCE, bytes_max=MOVES_BYTES)


def last_in_sync(state: ClusterState, committed: Partition, staying: set[int]) -> tuple[int, ...]:
    """Return the in-sync replicas outside the target that have to stay, because otherwise no live one is left."""
    isr = committed.state.isr
    if any(replica in staying and replica in state.brokers for replica in isr):
        return ()
    return tuple(replica for replica in isr if replica not in staying)


@value
class Move:
    """The reassignment of one partition in a topic's znode: replicas, those being added, those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


def under_way(body: TopicBody, index: int, target: Sequence[int], kept: Sequence[int] = ()) -> Move:
    """Return the reassignment of a partition with both its old and new replicas."""
    origin = body.origin(index)
    all_replicas = tuple(dict.fromkeys((*target, *origin, *kept)))
    adding = tuple(replica for replica in all_replicas if replica not in origin and replica not in kept)
    removing = tuple(replica for replica in all_replicas if replica not in target)
    return Move(all_replicas, adding, removing)


def with_moves(body: TopicBody, moves: Mapping[int, Move]) -> TopicBody:
    """Return the znode with these reassignments."""
    adding = {**body.adding_replicas, **{index: move.adding for index, move in moves.items()}}
    removing = {**body.removing_replicas, **{index: move.removing for index, move in moves.items()}}
    return replace(
        body,
        assignment={**body.assignment, **{index: move.replicas for index, move in moves.items()}},
        adding_replicas={index: ids for index, ids in adding.items() if ids},
        removing_replicas={index: ids for index, ids in removing.items() if ids},
    )


def final_state(state: ClusterState, committed: Partition, staying: Sequence[int]) -> LeaderAndIsr:
    """Return the state in which only these are replicas, with a new leader epoch."""
    before = committed.state
    elected = elected_among(state, committed, staying)
    if elected is None:
        elected = elections.Elected(before.leader, tuple(one for one in before.isr if one in staying))
    return partitions.with_leader(committed, elected, state.controller_epoch)


def elected_among(state: ClusterState, committed: Partition, staying: Sequence[int]) -> elections.Elected | None:
    """Elect leader and ISR among only these replicas; a leader that is shutting down stays until it does."""
    before = committed.state
    live = state.live | ({before.leader} & state.brokers.keys())
    return elections.elect_reassigned_leader(staying, before.leader, before.isr, live)


def advance(state: ClusterState, name: str) -> list[Effect]:
    """Complete reassignments whose target replicas are all in sync, with one alive to lead."""
    topic = state.topics.get(name)
    if topic is None or name in state.deleting:
        return []
    arrived: dict[int, Move] = {}
    writes: dict[int, PartitionWrite] = {}
    for index in topic.body.reassigned:
        target, committed = topic.body.target(index), state.partitions.get(TopicPartition(name, index))
        if committed is not None:
            if not set(target) <= set(committed.state.isr) or elected_among(state, committed, target) is None:
                continue
            after = final_state(state, committed, target)
            writes[index] = PartitionWrite(TopicPartition(name, index), after, committed.epoch)
        arrived[index] = Move(tuple(target))
        if len(arrived) == MOVES_AT_ONCE:
            break
    for some in at_once(arrived, writes):  # the next ones follow this write
        states = tuple(writes[index] for index in some if index in writes)
        body = with_moves(topic.body, {index: arrived[index] for index in some})
        return [WriteTopic(name, body, topic.version, COMPLETE, states=states)]
    return []


def on_written(state: ClusterState, event: TopicWritten, before: TopicBody) -> list[Effect]:
    """Handle a committed start or completion: update the remaining replicas, then stop the others."""
    batch, moved = RequestBatch(state), []
    for index, staying in event.body.assignment.items():
        partition, old = TopicPartition(event.name, index), before.assignment.get(index, ())
        if partition not in event.states and staying == old:
            continue
        moved.append(index)
        gone = [replica for replica in old if replica not in staying]
        if partition in event.states:
            partitions.adopt(state, partition, event.states[partition])
            batch.add_leadership(partition, new_on=set(staying).difference(old))
        for replica in staying:
            replicas.set_online(state, partition, replica)
        for replica in gone:
            replicas.forget(state, partition, replica)
        batch.stop(partition, gone, delete=True)
    kind = "reassignment begun" if event.label == BEGIN else "reassignment completed"
    event_effect = effects.PublishEvent(kind, {"topic": event.name, "partitions": moved})
    return [event_effect, *batch.flush(), *advance(state, event.name)]


def answer(state: ClusterState, event: ReassignmentStarted) -> list[Effect]:
    """Answer a reassignment request from the znodes' contents once its writes have their outcomes."""

    def row(partition: TopicPartition) -> ReassignablePartitionResponse:
        code, message = event.refused.get(partition, (int(ErrorCode.NONE), ""))
        topic = state.topics.get(partition.topic)
        if partition in event.targets:
            reached = topic is not None and topic.body.target(partition.partition) == event.targets[partition]
            if not reached:
                code = ErrorCode.INVALID_UPDATE_VERSION
                message = "The topic has changed during the request; try again."
        return ReassignablePartitionResponse(
            partition_index=partition.partition, error_code=code, error_message=message or None
        )

    responses = [
        ReassignableTopicResponse(name=name, partitions=[row(TopicPartition(name, index)) for index in indices])
        for name, indices in event.requested
    ]
    answered = AlterPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, responses=responses)
    return [effects.SendReply(event.token, answered)]


def list_ongoing(state: ClusterState, event: ReassignmentsListed) -> list[Effect]:
    """List ongoing reassignments, of the requested partitions or of all."""
    requested: Iterable[tuple[str, Iterable[int] | None]]
    if event.request.topics is None:
        requested = [(name, None) for name in sorted(state.topics)]
    else:
        requested = [(topic.name, topic.partition_indexes) for topic in event.request.topics]
    topics = []
    for name, indices in requested:
        topic = state.topics.get(name)
        if topic is None or name in state.deleting:
            continue
        indexes = topic.body.reassigned if indices is None else [one for one in topic.body.reassigned if one in indices]
        if indexes:
            rows = [ongoing(topic.body, index) for index in indexes]
            topics.append(OngoingTopicReassignment(name=name, partitions=rows))
    response = ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=topics)
    return [effects.SendReply(event.token, response)]


def ongoing(body: TopicBody, index: int) -> OngoingPartitionReassignment:
    """One row of the list."""
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(body.assignment[index]),
        adding_replicas=list(body.adding_replicas.get(index, ())),
        removing_replicas=list(body.removing_replicas.get(index, ())),
    )
