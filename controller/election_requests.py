"""Handles ElectLeaders in the controller (KIP-183, KIP-460): preferred or unclean elections.

Each partition is checked on its own, in Kafka's order: unknown, being deleted, already led as requested, without a
candidate. A requested unclean election needs no configuration, and is used only where no in-sync replica is alive. The
response reports what was committed.
"""

from __future__ import annotations

from typing import Final

from anabranch.controller import effects, elections, partitions
from anabranch.controller.effects import Effect, PartitionWrite
from anabranch.controller.events import ElectionRequested, PartitionsWritten
from anabranch.controller.follow_ups import Election
from anabranch.controller.model import TopicPartition
from anabranch.controller.state import ClusterState
from anabranch.protocol.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

PREFERRED: Final = 0
UNCLEAN: Final = 1


def ask(state: ClusterState, event: ElectionRequested) -> list[Effect]:
    """Write the elections that are needed and possible; the response follows from the outcome."""
    request = event.request
    if request.election_type not in (PREFERRED, UNCLEAN):
        refused = ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=[])
        return [effects.SendReply(event.token, refused)]
    writes: list[PartitionWrite] = []
    results: dict[TopicPartition, tuple[int, str]] = {}
    requested = requested_partitions(state, request)
    for partition in requested:
        try:
            writes.append(write(state, partition, request.election_type))
        except KafkaError as error:
            results[partition] = (error.code, error.message)
    if request.topic_partitions is None:  # a request for all partitions is answered with those that needed an election
        requested = tuple(one for one in requested if results.get(one, (0, ""))[0] != ErrorCode.ELECTION_NOT_NEEDED)
    label = "elect-preferred" if request.election_type == PREFERRED else "elect-unclean"
    return [effects.WritePartitions(tuple(writes), label, then=Election(event.token, results, requested))]


def requested_partitions(state: ClusterState, request: ElectLeadersRequest) -> tuple[TopicPartition, ...]:
    """Return the partitions of a request, each once; all partitions if it names none."""
    if request.topic_partitions is None:
        return tuple(one for name in sorted(state.topics) for one in state.partitions_of(name))
    pairs = (TopicPartition(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions)
    return tuple(dict.fromkeys(pairs))


def write(state: ClusterState, partition: TopicPartition, election_type: int) -> PartitionWrite:
    """Elect a leader for one partition. Raises KafkaError if there is no election."""
    assignment, committed = state.assignment(partition), state.partitions.get(partition)
    if not assignment or partitions.removed_soon(state, partition):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if partition.topic in state.deleting:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted.")
    led_by = elections.NO_LEADER if committed is None else committed.state.leader
    if led_by == assignment[0] if election_type == PREFERRED else led_by in state.brokers:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"Broker {led_by} already leads the partition.")
    elected = None
    if committed is not None and election_type == PREFERRED:
        elected = elections.elect_preferred_leader(assignment, committed.state.isr, state.live)
    elif committed is not None:
        elected = elections.elect_offline_leader(assignment, committed.state.isr, state.live, unclean=True)
    if elected is None or committed is None:
        raise no_candidate(assignment, election_type)
    return PartitionWrite(
        partition, partitions.with_leader(committed, elected, state.controller_epoch), committed.epoch
    )


def no_candidate(assignment: tuple[int, ...], election_type: int) -> KafkaError:
    """Return the error that says why none of these replicas can be elected."""
    if election_type == PREFERRED:
        return KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"The preferred replica {assignment[0]} is not alive, or not in sync.",
        )
    return KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"No replica of {list(assignment)} is alive.")


def reply(then: Election, event: PartitionsWritten) -> Effect:
    """Build the response from the committed states."""
    topics: dict[str, ReplicaElectionResult] = {}
    for partition in then.requested:
        code, message = then.results.get(partition, (int(ErrorCode.NONE), ""))
        if partition in event.lost:
            code, message = (
                int(ErrorCode.INVALID_UPDATE_VERSION),
                "The partition has changed during the request; try again.",
            )
        topic = topics.setdefault(partition.topic, ReplicaElectionResult(topic=partition.topic, partition_result=[]))
        topic.partition_result.append(
            PartitionResult(partition_id=partition.partition, error_code=code, error_message=message or None)
        )
    response = ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=list(topics.values()))
    return effects.SendReply(then.token, response)
