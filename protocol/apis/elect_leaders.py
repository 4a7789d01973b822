"""ElectLeaders (key 43), v0-v2, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Int8, Int16, Int32, Text, always, message, since


@message
class TopicPartitions:
    topic: Text
    partitions: list[Int32]


@message
class ElectLeadersRequest:
    election_type: Int8 = since(1, absent=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = always(absent=60000)


@message
class PartitionResult:
    partition_id: Int32
    error_code: Int16
    error_message: Text | None


@message
class ReplicaElectionResult:
    topic: Text
    partition_result: list[PartitionResult]


@message
class ElectLeadersResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16 = since(1, absent=0)
    replica_election_results: list[ReplicaElectionResult]
