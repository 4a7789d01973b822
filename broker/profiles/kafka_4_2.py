"""Kafka 4.2: share groups, streams groups, and committed offsets by topic ids."""

from __future__ import annotations

import dataclasses
from typing import Final

from anabranch.broker.profiles import kafka_4_1
from anabranch.broker.profiles.profile import change_table

RANGES: Final = change_table(
    kafka_4_1.RANGES,
    """
ListOffsets 1-11
OffsetCommit 2-10
OffsetFetch 1-10
WriteTxnMarkers 1-2
ShareFetch 1-2
ShareAcknowledge 1-2
AddRaftVoter 0-1
WriteShareGroupState 0-1
ReadShareGroupStateSummary 0-1
StreamsGroupHeartbeat 0
StreamsGroupDescribe 0
DescribeShareGroupOffsets 0-1
""",
)

PROFILE: Final = dataclasses.replace(
    kafka_4_1.PROFILE,
    version="4.2",
    ranges=RANGES,
    isolates_failing_records=True,
    drops_expressions_at_once=True,
    alter_offsets_creates_share_groups=True,
    supported_features={
        **kafka_4_1.PROFILE.supported_features,
        "metadata.version": (7, 29),
        "streams.version": (0, 1),
    },
    finalized_features={
        **kafka_4_1.PROFILE.finalized_features,
        "metadata.version": 29,
        "share.version": 1,
        "streams.version": 1,
    },
)
