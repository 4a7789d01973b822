"""AlterPartitionReassignments (key 45), v0, flexible from v0."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Int32, Text, always


@dataclass(slots=True, kw_only=True)
class ReassignablePartition:
    partition_index: Int32
    replicas: list[Int32] | None = always(absent=None)


@dataclass(slots=True, kw_only=True)
class ReassignableTopic:
    name: Text
    partitions: list[ReassignablePartition]


@dataclass(slots=True, kw_only=True)
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = always(absent=60000)
    topics: list[ReassignableTopic]


@dataclass(slots=True, kw_only=True)
class ReassignablePartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: Text | None


@dataclass(slots=True, kw_only=True)
class ReassignableTopicResponse:
    name: Text
    partitions: list[ReassignablePartitionResponse]


@dataclass(slots=True, kw_only=True)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None
    responses: list[ReassignableTopicResponse]
