"""Kafka 3.5 with ZooKeeper: the last version before transaction verification (KIP-890) and KIP-848 groups."""

from __future__ import annotations

from typing import Final

from anabranch.broker.profiles import kafka_3_9
from anabranch.broker.profiles.profile import CompatibilityProfile, change_table

RANGES: Final = change_table(
    kafka_3_9.RANGES,
    """
Produce 0-9
Fetch 0-15
ListOffsets 0-8
OffsetCommit 0-8
OffsetFetch 0-8
FindCoordinator 0-4
ListGroups 0-4
ApiVersions 0-3
InitProducerId 0-4
AddPartitionsToTxn 0-3
AddOffsetsToTxn 0-3
EndTxn 0-3
TxnOffsetCommit 0-3
DescribeCluster 0
ListTransactions 0
ConsumerGroupHeartbeat gone
ConsumerGroupDescribe gone
""",
)

PROFILE: Final = CompatibilityProfile(version="3.5", ranges=RANGES)
