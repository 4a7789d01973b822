"""DescribeShareGroupOffsets (key 90), v0-v1, flexible: start offsets and lags of share groups (KIP-932, KIP-1226).

v1   how many records are left                                                        KIP-1226
"""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, Text, Uuid, always, message, since


@message
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: Text
    partitions: list[Int32]


@message
class DescribeShareGroupOffsetsRequestGroup:
    group_id: Text
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None
    """Null: all of them."""


@message
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup]


@message
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = since(1, absent=-1)
    error_code: Int16
    error_message: Text | None = always(absent=None)


@message
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: Text
    topic_id: Uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


@message
class DescribeShareGroupOffsetsResponseGroup:
    group_id: Text
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16
    error_message: Text | None = always(absent=None)


@message
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup]
