"""Kafka 4.0: no ZooKeeper APIs, old API versions removed (KIP-896), KIP-848 groups, transactions version 2.

Produce is advertised from version 0, although versions below 3 are refused: older librdkafka otherwise assumes that the
broker does not support compression (KAFKA-18659).
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.profiles import kafka_3_9
from anabranch.broker.profiles.profile import CompatibilityProfile, change_table

RANGES: Final = change_table(
    kafka_3_9.RANGES,
    """
Produce 0-12
Fetch 4-17
ListOffsets 1-10
Metadata 0-13
LeaderAndIsr gone
StopReplica gone
UpdateMetadata gone
ControlledShutdown gone
OffsetCommit 2-9
OffsetFetch 1-9
JoinGroup 2-9
DescribeGroups 0-6
CreateTopics 2-7
DeleteTopics 1-6
OffsetForLeaderEpoch 2-4
EndTxn 0-5
WriteTxnMarkers 1
TxnOffsetCommit 0-5
DescribeAcls 1-3
CreateAcls 1-3
DeleteAcls 1-3
DescribeConfigs 1-4
AlterReplicaLogDirs 1-2
DescribeLogDirs 1-4
CreateDelegationToken 1-3
RenewDelegationToken 1-2
ExpireDelegationToken 1-2
DescribeDelegationToken 1-3
DescribeQuorum 0-2
AlterPartition gone
UpdateFeatures 0-2
Envelope gone
DescribeCluster 0-2
UnregisterBroker 0
AllocateProducerIds gone
ConsumerGroupHeartbeat 0-1
ConsumerGroupDescribe 0-1
GetTelemetrySubscriptions 0
PushTelemetry 0
ListConfigResources 0
DescribeTopicPartitions 0
AddRaftVoter 0
RemoveRaftVoter 0
""",
)

PROFILE: Final = CompatibilityProfile(
    version="4.0",
    ranges=RANGES,
    refused_below={"Produce": 3},
    any_broker_is_controller=True,
    answers_like_a_quorum=True,
    leave_group_removes_all_kinds=True,
    shows_last_assignments=True,
    keeps_emptied_groups=True,
    tests_pending_first=True,
    converts_messages=False,
    groups_have_configs=True,
    has_client_metrics=True,
    updates_features_together=True,
    supported_features={
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 25),
        "transaction.version": (0, 2),
    },
    finalized_features={
        "eligible.leader.replicas.version": 0,
        "group.version": 1,
        "kraft.version": 0,
        "metadata.version": 25,
        "transaction.version": 2,
    },
)
