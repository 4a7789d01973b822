"""PartitionLeaderEpochsForPartitions (key 2531): the cuts that a resize left in each partition (KIP-253 section 5).

v0  exactly the KIP's layout; one value per map suffices, because a new partition has exactly one parent and a deleted
    one exactly one merge target
v1  flexible; adds an error per partition and the whole lineage: every (generation, leader epoch) of the partition
"""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Text, always, message, since


@message
class PartitionLeaderEpochsForPartitionsRequestTopic:
    topic: Text
    partitions: list[Int32]


@message
class PartitionLeaderEpochsForPartitionsRequest:
    topics: list[PartitionLeaderEpochsForPartitionsRequestTopic]


@message
class LineageEpoch:
    generation: Int32
    leader_epoch: Int32


@message
class PartitionLeaderEpochsForPartitionsResponsePartition:
    partition: Int32
    leader_epoch_after_creation: Int32
    leader_epoch_before_deletion: Int32
    error_code: Int16 = since(1, absent=0)
    gen_start: list[LineageEpoch] = since(1, absent=list)


@message
class PartitionLeaderEpochsForPartitionsResponseTopic:
    topic: Text
    partitions: list[PartitionLeaderEpochsForPartitionsResponsePartition]


@message
class PartitionLeaderEpochsForPartitionsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    topics: list[PartitionLeaderEpochsForPartitionsResponseTopic]
