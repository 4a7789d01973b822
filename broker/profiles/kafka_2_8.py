"""Kafka 2.8 with ZooKeeper: classic groups only, and no ListTransactions."""

from __future__ import annotations

from typing import Final

from anabranch.broker.profiles import kafka_3_9
from anabranch.broker.profiles.profile import CompatibilityProfile, change_table

RANGES: Final = change_table(
    kafka_3_9.RANGES,
    """
Produce 0-9
Fetch 0-12
ListOffsets 0-6
Metadata 0-11
LeaderAndIsr 0-5
StopReplica 0-3
UpdateMetadata 0-7
OffsetCommit 0-8
OffsetFetch 0-7
FindCoordinator 0-3
JoinGroup 0-7
LeaveGroup 0-4
ListGroups 0-4
ApiVersions 0-3
InitProducerId 0-4
AddPartitionsToTxn 0-3
AddOffsetsToTxn 0-3
EndTxn 0-3
TxnOffsetCommit 0-3
DescribeAcls 0-2
CreateAcls 0-2
DeleteAcls 0-2
DescribeLogDirs 0-2
CreateDelegationToken 0-2
DescribeDelegationToken 0-2
AlterPartition 0
UpdateFeatures 0
Envelope gone
DescribeCluster 0
DescribeTransactions gone
ListTransactions gone
AllocateProducerIds gone
ConsumerGroupHeartbeat gone
ConsumerGroupDescribe gone
""",
)

PROFILE: Final = CompatibilityProfile(version="2.8", ranges=RANGES)
