"""DescribeQuorum (key 55), v0-v2, flexible from v0: the controllers and their progress (KIP-595).

v1   when each was last heard of                                         KIP-836
v2   log directories and addresses of the controllers                    KIP-853
"""

from __future__ import annotations

from anabranch.protocol.wire import ZERO_UUID, Int16, Int32, Int64, Text, UInt16, Uuid, message, since


@message
class RequestPartitionData:
    partition_index: Int32


@message
class RequestTopicData:
    topic_name: Text
    partitions: list[RequestPartitionData]


@message
class DescribeQuorumRequest:
    topics: list[RequestTopicData]


@message
class ReplicaState:
    replica_id: Int32
    replica_directory_id: Uuid = since(2, absent=ZERO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = since(1, absent=-1)
    last_caught_up_timestamp: Int64 = since(1, absent=-1)


@message
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: Text | None = since(2, absent="")
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


@message
class TopicData:
    topic_name: Text
    partitions: list[PartitionData]


@message
class Listener:
    name: Text
    host: Text
    port: UInt16


@message
class Node:
    node_id: Int32
    listeners: list[Listener]


@message
class DescribeQuorumResponse:
    error_code: Int16
    error_message: Text | None = since(2, absent="")
    topics: list[TopicData]
    nodes: list[Node] = since(2, absent=list)
