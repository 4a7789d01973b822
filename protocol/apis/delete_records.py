"""DeleteRecords (key 21), v0-v2, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, Text, always, message


@message
class DeleteRecordsPartition:
    partition_index: Int32
    offset: Int64


@message
class DeleteRecordsTopic:
    name: Text
    partitions: list[DeleteRecordsPartition]


@message
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@message
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


@message
class DeleteRecordsTopicResult:
    name: Text
    partitions: list[DeleteRecordsPartitionResult]


@message
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    topics: list[DeleteRecordsTopicResult]
