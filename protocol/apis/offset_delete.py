"""OffsetDelete (key 47), v0, never flexible."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Text, always, message


@message
class OffsetDeleteRequestPartition:
    partition_index: Int32


@message
class OffsetDeleteRequestTopic:
    name: Text
    partitions: list[OffsetDeleteRequestPartition]


@message
class OffsetDeleteRequest:
    group_id: Text
    topics: list[OffsetDeleteRequestTopic]


@message
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16


@message
class OffsetDeleteResponseTopic:
    name: Text
    partitions: list[OffsetDeleteResponsePartition]


@message
class OffsetDeleteResponse:
    error_code: Int16
    throttle_time_ms: Int32 = always(absent=0)
    topics: list[OffsetDeleteResponseTopic]
