"""AlterPartitionReassignments (key 45), v0-v1, flexible from v0.

v1   whether the number of replicas may change                           KIP-860
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int16, Int32, Text, always, message, since


@message
class ReassignablePartition:
    partition_index: Int32
    replicas: list[Int32] | None = always(absent=None)


@message
class ReassignableTopic:
    name: Text
    partitions: list[ReassignablePartition]


@message
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = always(absent=60000)
    allow_replication_factor_change: Boolean = since(1, absent=True)
    topics: list[ReassignableTopic]


@message
class ReassignablePartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: Text | None


@message
class ReassignableTopicResponse:
    name: Text
    partitions: list[ReassignablePartitionResponse]


@message
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    allow_replication_factor_change: Boolean = since(1, absent=True)
    error_code: Int16
    error_message: Text | None
    responses: list[ReassignableTopicResponse]
