"""Administers replicas for `Admin`: elections, reassignments, directory moves, deletion of the oldest records.

Requests about one partition go to its leader, those about a directory to its broker, and the rest to the controller. A
call about many partitions returns the outcome of each: None, or the `KafkaError` of its refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.clients.controller_calls import call_controller
from anabranch.clients.network import Network
from anabranch.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from anabranch.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from anabranch.protocol.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from anabranch.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from anabranch.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from anabranch.protocol.errors import ErrorCode, KafkaError, raise_for_error
from anabranch.protocol.topic_partition import TopicPartition, checked_partition

Outcomes = dict[TopicPartition, KafkaError | None]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition in reassignment: all broker ids, those being added, those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """One log in a directory. `lag`: records behind its leader. `is_future`: a copy that is moving in."""

    size_bytes: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A data directory of a broker; its sizes are -1 if the broker does not report them."""

    path: str
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, tuple[ReplicaSize, ...]]


async def delete_records(
    network: Network, before: Mapping[TopicPartition, int], timeout_ms: int
) -> dict[TopicPartition, int]:
    """Delete the records before an offset of each partition (-1: all committed ones). Raises KafkaError.

    Returns partition -> its new log start offset.
    """

    async def one(partition: TopicPartition, offset: int) -> int:
        row = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
        topic = DeleteRecordsTopic(name=partition.topic, partitions=[row])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)

        async def once() -> int:
            leader = await network.leader_of(partition)
            response: DeleteRecordsResponse = await network.call(leader, request, timeout_ms=timeout_ms + 5000)
            result = response.topics[0].partitions[0]
            if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                network.request_refresh()
            raise_for_error(result.error_code, str(partition))
            return result.low_watermark

        return await network.retry(once, timeout_ms=timeout_ms)

    requested = {checked_partition(given): offset for given, offset in before.items()}
    offsets = await asyncio.gather(*(one(partition, offset) for partition, offset in requested.items()))
    return dict(zip(requested, offsets, strict=True))


async def elect_leaders(
    network: Network, partitions: Iterable[TopicPartition] | None, *, unclean: bool, timeout_ms: int
) -> Outcomes:
    """Elect preferred replicas, or with `unclean` any live one if no in-sync replica is alive."""
    requested = None
    if partitions is not None:
        requested = [TopicPartitions(topic=topic, partitions=rows) for topic, rows in _by_topic(partitions).items()]
    request = ElectLeadersRequest(election_type=int(unclean), topic_partitions=requested, timeout_ms=timeout_ms)
    response: ElectLeadersResponse = await call_controller(
        network, request, lambda answer: int(answer.error_code), timeout_ms=timeout_ms + 5000
    )
    raise_for_error(response.error_code, "elections")
    return {
        TopicPartition(topic.topic, row.partition_id): _refusal(row)
        for topic in response.replica_election_results
        for row in topic.partition_result
    }


async def alter_partition_reassignments(
    network: Network, moves: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int
) -> Outcomes:
    """Start reassigning partitions to these brokers; None cancels a reassignment."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for given, replicas in moves.items():
        partition, ids = checked_partition(given), None if replicas is None else list(replicas)
        row = ReassignablePartition(partition_index=partition.partition, replicas=ids)
        topics.setdefault(partition.topic, []).append(row)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms, topics=[ReassignableTopic(name=name, partitions=rows) for name, rows in topics.items()]
    )
    response: AlterPartitionReassignmentsResponse = await call_controller(
        network, request, lambda answer: int(answer.error_code), timeout_ms=timeout_ms + 5000
    )
    raise_for_error(response.error_code, response.error_message or "reassignments")
    return {
        TopicPartition(topic.name, row.partition_index): _refusal(row)
        for topic in response.responses
        for row in topic.partitions
    }


async def list_partition_reassignments(
    network: Network, partitions: Iterable[TopicPartition] | None, timeout_ms: int
) -> dict[TopicPartition, Reassignment]:
    """Return the ongoing reassignments, of these partitions or of all."""
    requested = None
    if partitions is not None:
        named = _by_topic(partitions).items()
        requested = [ListPartitionReassignmentsTopics(name=name, partition_indexes=rows) for name, rows in named]
    request = ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=requested)
    response: ListPartitionReassignmentsResponse = await call_controller(
        network, request, lambda answer: int(answer.error_code), timeout_ms=timeout_ms + 5000
    )
    raise_for_error(response.error_code, response.error_message or "reassignments")
    return {
        TopicPartition(topic.name, row.partition_index): Reassignment(
            tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
        )
        for topic in response.topics
        for row in topic.partitions
    }


async def describe_log_dirs(network: Network, broker: int) -> list[LogDir]:
    """Return the data directories of a broker, with the logs in each. Raises KafkaError."""
    request = DescribeLogDirsRequest(topics=None)
    response: DescribeLogDirsResponse = await network.retry(lambda: network.call(broker, request))
    raise_for_error(response.error_code, f"log directories of broker {broker}")
    found = []
    for result in response.results:
        raise_for_error(result.error_code, result.log_dir)
        replicas: dict[TopicPartition, tuple[ReplicaSize, ...]] = {}
        for topic in result.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                size = ReplicaSize(row.partition_size, row.offset_lag, row.is_future_key)
                replicas[partition] = (*replicas.get(partition, ()), size)
        found.append(LogDir(result.log_dir, result.total_bytes, result.usable_bytes, replicas))
    return found


async def alter_replica_log_dirs(network: Network, broker: int, moves: Mapping[TopicPartition, str]) -> Outcomes:
    """Start moving replicas of a broker to other directories of it: partition -> path."""
    by_path: dict[str, list[TopicPartition]] = {}
    for partition, path in moves.items():
        by_path.setdefault(path, []).append(partition)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[AlterReplicaLogDirTopic(name=name, partitions=rows) for name, rows in _by_topic(some).items()],
            )
            for path, some in by_path.items()
        ]
    )
    response: AlterReplicaLogDirsResponse = await network.retry(lambda: network.call(broker, request))
    return {
        TopicPartition(topic.topic_name, row.partition_index): _refusal(row)
        for topic in response.results
        for row in topic.partitions
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for partition in map(checked_partition, partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics


def _refusal(row: Any) -> KafkaError | None:
    code = ErrorCode(row.error_code)
    return None if code == ErrorCode.NONE else KafkaError(code, getattr(row, "error_message", None) or "")
