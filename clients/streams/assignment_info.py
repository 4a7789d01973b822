"""The leader's user data for one member: its tasks, its standby tasks, the group's partitions, the next rebalance.

The active tasks correspond to the assigned partitions of the consumer protocol, one task per partition, both in the
order of partitions: a task with several partitions is repeated.

The versions differ in how they name the partitions of other instances. Up to 4 each partition has its topic's name;
from 5 on topics are listed once and referred to by index (KAFKA-7149). Fields that a version lacks are left out.
Source: AssignmentInfo and AssignorError of Kafka Streams.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from anabranch.clients.streams.task_id import TaskId
from anabranch.protocol import streams_protocol as wire
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.host_port import ADVICE, parse_host_port
from anabranch.protocol.streams_protocol import LATEST_VERSION, NO_REBALANCE_MS
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.protocol.values import value

NAMED_TOPOLOGIES_SINCE: Final = 10
INDEXED_TOPICS_SINCE: Final = 5


class AssignorError(enum.IntEnum):
    """Why the leader gives no assignment."""

    NONE = 0
    INCOMPLETE_SOURCE_TOPIC_METADATA = 1
    VERSION_PROBING = 2
    ASSIGNMENT_ERROR = 3
    SHUTDOWN_REQUESTED = 4


class Host(NamedTuple):
    """Where an instance serves queries of its state."""

    name: str
    port: int

    @classmethod
    def parse(cls, end_point: str) -> Host | None:
        """Parse `host:port` of `application.server`; None for an empty text. Raises ValueError for an invalid one."""
        if not end_point:
            return None
        try:
            name, port = parse_host_port(end_point)
        except ValueError as error:
            raise ValueError(f"{end_point!r} is not host:port: {error}") from None
        if not name:
            raise ValueError(f"{end_point!r} is not host:port: {ADVICE}")
        return cls(name, port)


Hosted = Mapping[Host, Collection[TopicPartition]]
"""Host -> the source partitions of its tasks, active or standby."""


@value(kw_only=True)
class AssignmentInfo:
    """One member's assignment data."""

    version: int = LATEST_VERSION
    commonly_supported_version: int = LATEST_VERSION
    active_tasks: Sequence[TaskId] = ()
    standby_tasks: Mapping[TaskId, Collection[TopicPartition]] = dataclasses.field(default_factory=dict)
    partitions_by_host: Hosted = dataclasses.field(default_factory=dict)
    standby_partitions_by_host: Hosted = dataclasses.field(default_factory=dict)
    error_code: int = AssignorError.NONE
    next_rebalance_ms: int = NO_REBALANCE_MS
    """When this member has to rejoin: never, now (0), or at that time of the wall clock."""

    def partitions_of_tasks(self, assigned: Iterable[TopicPartition]) -> dict[TaskId, list[TopicPartition]]:
        """Return the partitions of each active task. Raises ValueError if tasks and partitions do not match."""
        partitions = sorted(assigned)
        if len(partitions) != len(self.active_tasks):
            raise ValueError(f"{len(partitions)} partitions for {len(self.active_tasks)} active tasks")
        tasks: dict[TaskId, list[TopicPartition]] = {}
        for task, partition in zip(self.active_tasks, partitions, strict=True):
            tasks.setdefault(task, []).append(partition)
        return tasks


class WrittenHosts(NamedTuple):
    """The encoded host maps of a version: encoded once, because all members get the same bytes."""

    hosts: list[wire.HostPartitions]
    topics: list[wire.TopicIndex]
    active_hosts: list[wire.IndexedHostPartitions]
    standby_hosts: list[wire.IndexedHostPartitions]


def write_hosts(version: int, active: Hosted, standby: Hosted) -> WrittenHosts:
    """Encode the host maps for assignments of one version."""
    if version < INDEXED_TOPICS_SINCE:
        return WrittenHosts(_write_hosts(active), [], [], [])
    indexes = _indexes(itertools.chain(active.values(), standby.values()))
    topics = [wire.TopicIndex(index=index, topic=topic) for topic, index in indexes.items()]
    return WrittenHosts([], topics, _index_hosts(active, indexes), _index_hosts(standby, indexes))


def encode_assignment_info(info: AssignmentInfo, hosts: WrittenHosts | None = None) -> bytes:
    """Encode the user data of an assignment. Raises ValueError for fields that its version lacks. `hosts`: prepared
    maps of `info`.
    """
    if info.version < NAMED_TOPOLOGIES_SINCE and any(one.named_topology for one in _tasks(info)):
        raise ValueError("named topologies need version 10")
    hosts = hosts or write_hosts(info.version, info.partitions_by_host, info.standby_partitions_by_host)
    return wire.encode(
        wire.StreamsAssignment(
            version=info.version,
            commonly_supported_version=info.commonly_supported_version,
            active_tasks=[_write_task(task) for task in info.active_tasks],
            standby_tasks=[
                wire.StandbyTask(task=_write_task(task), partitions=_named_partitions(partitions))
                for task, partitions in info.standby_tasks.items()
            ],
            hosts=hosts.hosts,
            topics=hosts.topics,
            active_hosts=hosts.active_hosts,
            standby_hosts=hosts.standby_hosts,
            error_code=info.error_code,
            next_rebalance_ms=info.next_rebalance_ms,
        )
    )


def decode_assignment_info(data: bytes) -> AssignmentInfo:
    """Decode a leader's assignment data. Raises DecodeError, also for an unknown version."""
    read = wire.decode_assignment(data)
    try:
        topics = {entry.index: entry.topic for entry in read.topics}
        return AssignmentInfo(
            version=read.version,
            commonly_supported_version=read.commonly_supported_version,
            active_tasks=tuple(_read_task(task) for task in read.active_tasks),
            standby_tasks={
                _read_task(row.task): tuple(TopicPartition(one.topic, one.partition) for one in row.partitions)
                for row in read.standby_tasks
            },
            partitions_by_host={
                Host(row.host, row.port): tuple(TopicPartition(one.topic, one.partition) for one in row.partitions)
                for row in read.hosts
            }
            | _read_indexed(read.active_hosts, topics),
            standby_partitions_by_host=_read_indexed(read.standby_hosts, topics),
            error_code=read.error_code,
            next_rebalance_ms=read.next_rebalance_ms,
        )
    except KeyError as error:
        raise DecodeError(f"StreamsAssignment: unknown topic index {error}", buffer=data) from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"StreamsAssignment: a named topology is not UTF-16: {error.reason}", buffer=data) from None


def _tasks(info: AssignmentInfo) -> Iterable[TaskId]:
    return itertools.chain(info.active_tasks, info.standby_tasks)


def _write_task(task: TaskId) -> wire.WireTask:
    name = task.named_topology.encode("utf-16-be")
    units = list(struct.unpack(f">{len(name) // 2}H", name)) if name else []
    return wire.WireTask(subtopology=task.subtopology, partition=task.partition, named_topology=units)


def _read_task(task: wire.WireTask) -> TaskId:
    units = task.named_topology
    name = struct.pack(f">{len(units)}H", *units).decode("utf-16-be") if units else ""
    return TaskId(task.subtopology, task.partition, name)


def _named_partitions(partitions: Iterable[TopicPartition]) -> list[wire.NamedPartition]:
    return [wire.NamedPartition(topic=one.topic, partition=one.partition) for one in partitions]


def _write_hosts(hosted: Hosted) -> list[wire.HostPartitions]:
    return [
        wire.HostPartitions(host=host.name, port=host.port, partitions=_named_partitions(partitions))
        for host, partitions in hosted.items()
    ]


def _indexes(hosted: Iterable[Collection[TopicPartition]]) -> dict[str, int]:
    """Return one dictionary of topics for both maps."""
    indexes: dict[str, int] = {}
    for partition in itertools.chain.from_iterable(hosted):
        if partition.topic not in indexes:
            indexes[partition.topic] = len(indexes)
    return indexes


def _index_hosts(hosted: Hosted, indexes: Mapping[str, int]) -> list[wire.IndexedHostPartitions]:
    return [
        wire.IndexedHostPartitions(
            host=host.name,
            port=host.port,
            partitions=[
                wire.IndexedPartition(topic_index=indexes[one.topic], partition=one.partition) for one in partitions
            ],
        )
        for host, partitions in hosted.items()
    ]


def _read_indexed(
    rows: Sequence[wire.IndexedHostPartitions], topics: Mapping[int, str]
) -> dict[Host, tuple[TopicPartition, ...]]:
    return {
        Host(row.host, row.port): tuple(
            TopicPartition(topics[one.topic_index], one.partition) for one in row.partitions
        )
        for row in rows
    }
