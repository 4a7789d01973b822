"""DescribeLogDirs (key 35), v0-v4, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int16, Int32, Int64, Text, always, message, since


@message
class DescribableLogDirTopic:
    topic: Text
    partitions: list[Int32]


@message
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None


@message
class DescribeLogDirsPartition:
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Boolean


@message
class DescribeLogDirsTopic:
    name: Text
    partitions: list[DescribeLogDirsPartition]


@message
class DescribeLogDirsResult:
    error_code: Int16
    log_dir: Text
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = since(4, absent=-1)
    usable_bytes: Int64 = since(4, absent=-1)


@message
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16 = since(3, absent=0)
    results: list[DescribeLogDirsResult]
