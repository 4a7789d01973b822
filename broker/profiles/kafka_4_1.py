"""Kafka 4.1: Produce with topic ids, and share groups as a preview."""

from __future__ import annotations

import dataclasses
from typing import Final

from anabranch.broker.profiles import kafka_4_0
from anabranch.broker.profiles.profile import change_table

RANGES: Final = change_table(
    kafka_4_0.RANGES,
    """
Produce 0-13
Fetch 4-18
JoinGroup 0-9
AlterPartitionReassignments 0-1
ListTransactions 0-2
ListConfigResources 0-1
ShareGroupHeartbeat 1
ShareGroupDescribe 1
ShareFetch 1
ShareAcknowledge 1
InitializeShareGroupState 0
ReadShareGroupState 0
WriteShareGroupState 0
DeleteShareGroupState 0
ReadShareGroupStateSummary 0
DescribeShareGroupOffsets 0
AlterShareGroupOffsets 0
DeleteShareGroupOffsets 0
""",
)

PROFILE: Final = dataclasses.replace(
    kafka_4_0.PROFILE,
    clears_start_of_transaction=True,
    has_share_coordinator=True,
    version="4.1",
    ranges=RANGES,
    supported_features={
        **kafka_4_0.PROFILE.supported_features,
        "metadata.version": (7, 27),
        "share.version": (0, 1),
    },
    finalized_features={
        **kafka_4_0.PROFILE.finalized_features,
        "eligible.leader.replicas.version": 1,
        "metadata.version": 27,
        "share.version": 0,
    },
)
