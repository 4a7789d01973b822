"""ReadShareGroupStateSummary (key 87), v0-v1, flexible: start offsets in share partitions (KIP-932).

v1   how many records behind the start are done                                       KIP-1226
"""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, Text, Uuid, always, message, since


@message
class PartitionData:
    partition: Int32
    leader_epoch: Int32


@message
class ReadStateSummaryData:
    topic_id: Uuid
    partitions: list[PartitionData]


@message
class ReadShareGroupStateSummaryRequest:
    group_id: Text
    topics: list[ReadStateSummaryData]


@message
class PartitionResult:
    partition: Int32
    error_code: Int16
    error_message: Text | None = always(absent=None)
    state_epoch: Int32 = always(absent=0)
    leader_epoch: Int32 = always(absent=0)
    start_offset: Int64 = always(absent=0)
    delivery_complete_count: Int32 = since(1, absent=-1)


@message
class ReadStateSummaryResult:
    topic_id: Uuid
    partitions: list[PartitionResult]


@message
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult]
