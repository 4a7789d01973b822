"""Kafka 3.9 with ZooKeeper: the default profile, and the base of the others."""

from __future__ import annotations

from typing import Final

from anabranch.broker.profiles.profile import CompatibilityProfile, table

RANGES: Final = table("""
Produce 0-11
Fetch 0-17
ListOffsets 0-9
Metadata 0-12
LeaderAndIsr 0-7
StopReplica 0-4
UpdateMetadata 0-8
ControlledShutdown 0-3
OffsetCommit 0-9
OffsetFetch 0-9
FindCoordinator 0-6
JoinGroup 0-9
Heartbeat 0-4
LeaveGroup 0-5
SyncGroup 0-5
DescribeGroups 0-5
ListGroups 0-5
SaslHandshake 0-1
ApiVersions 0-4
CreateTopics 0-7
DeleteTopics 0-6
DeleteRecords 0-2
InitProducerId 0-5
OffsetForLeaderEpoch 0-4
AddPartitionsToTxn 0-5
AddOffsetsToTxn 0-4
EndTxn 0-4
WriteTxnMarkers 0-1
TxnOffsetCommit 0-4
DescribeAcls 0-3
CreateAcls 0-3
DeleteAcls 0-3
DescribeConfigs 0-4
AlterConfigs 0-2
AlterReplicaLogDirs 0-2
DescribeLogDirs 0-4
SaslAuthenticate 0-2
CreatePartitions 0-3
CreateDelegationToken 0-3
RenewDelegationToken 0-2
ExpireDelegationToken 0-2
DescribeDelegationToken 0-3
DeleteGroups 0-2
ElectLeaders 0-2
IncrementalAlterConfigs 0-1
AlterPartitionReassignments 0
ListPartitionReassignments 0
OffsetDelete 0
DescribeClientQuotas 0-1
AlterClientQuotas 0-1
DescribeUserScramCredentials 0
AlterUserScramCredentials 0
AlterPartition 0-3
UpdateFeatures 0-1
Envelope 0
DescribeCluster 0-1
DescribeProducers 0
DescribeTransactions 0
ListTransactions 0-1
AllocateProducerIds 0
ConsumerGroupHeartbeat 0
ConsumerGroupDescribe 0
""")

PROFILE: Final = CompatibilityProfile(version="3.9", ranges=RANGES, shows_own_apis=True)
