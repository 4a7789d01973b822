"""StopReplica (key 5), v0-v4, flexible from v2: the controller stops replicas of a broker.

v1   broker epoch, partitions grouped by topic                           KIP-380
v3   leader epoch and "delete the data" per partition, so that a late request cannot undo a newer one  KIP-570
v4   whether the sender is a KRaft controller                            KIP-866
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int16, Int32, Int64, Text, always, message, since, until


@message
class StopReplicaPartitionV0:
    topic_name: Text
    partition_index: Int32


@message
class StopReplicaTopicV1:
    name: Text
    partition_indexes: list[Int32]


@message
class StopReplicaPartitionState:
    partition_index: Int32
    leader_epoch: Int32 = always(absent=-1)
    """-2 (Kafka's EpochDuringDelete) when the topic is being deleted."""
    delete_partition: Boolean


@message
class StopReplicaTopicState:
    topic_name: Text
    partition_states: list[StopReplicaPartitionState]


@message
class StopReplicaRequest:
    controller_id: Int32
    is_kraft_controller: Boolean = since(4, absent=False)
    controller_epoch: Int32
    broker_epoch: Int64 = since(1, absent=-1)
    delete_partitions: Boolean = until(2, absent=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = until(0, absent=list)
    topics: list[StopReplicaTopicV1] = since(1, absent=list, until=2)
    topic_states: list[StopReplicaTopicState] = since(3, absent=list)


@message
class StopReplicaPartitionError:
    topic_name: Text
    partition_index: Int32
    error_code: Int16


@message
class StopReplicaResponse:
    error_code: Int16
    partition_errors: list[StopReplicaPartitionError]
