"""StopReplica (key 5), v0-v4, flexible from v2.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Boolean, Int16, Int32, Int64, Text, always, since, until


@dataclass(slots=True, kw_only=True)
class StopReplicaPartitionV0:
    topic_name: Text
    partition_index: Int32


@dataclass(slots=True, kw_only=True)
class StopReplicaTopicV1:
    name: Text
    partition_indexes: list[Int32]


@dataclass(slots=True, kw_only=True)
class StopReplicaPartitionState:
    partition_index: Int32
    leader_epoch: Int32 = always(absent=-1)
    delete_partition: Boolean


@dataclass(slots=True, kw_only=True)
class StopReplicaTopicState:
    topic_name: Text
    partition_states: list[StopReplicaPartitionState]


@dataclass(slots=True, kw_only=True)
class StopReplicaRequest:
    controller_id: Int32
    is_kraft_controller: Boolean = since(4, absent=False)
    controller_epoch: Int32
    broker_epoch: Int64 = since(1, absent=-1)
    delete_partitions: Boolean = until(2, absent=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = until(0, absent=list)
    topics: list[StopReplicaTopicV1] = since(1, absent=list, until=2)
    topic_states: list[StopReplicaTopicState] = since(3, absent=list)


@dataclass(slots=True, kw_only=True)
class StopReplicaPartitionError:
    topic_name: Text
    partition_index: Int32
    error_code: Int16


@dataclass(slots=True, kw_only=True)
class StopReplicaResponse:
    error_code: Int16
    partition_errors: list[StopReplicaPartitionError]
