"""DeleteRecords (key 21), v0-v2, flexible from v2."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Int32, Int64, Text, always


@dataclass(slots=True, kw_only=True)
class DeleteRecordsPartition:
    partition_index: Int32
    offset: Int64


@dataclass(slots=True, kw_only=True)
class DeleteRecordsTopic:
    name: Text
    partitions: list[DeleteRecordsPartition]


@dataclass(slots=True, kw_only=True)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@dataclass(slots=True, kw_only=True)
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


@dataclass(slots=True, kw_only=True)
class DeleteRecordsTopicResult:
    name: Text
    partitions: list[DeleteRecordsPartitionResult]


@dataclass(slots=True, kw_only=True)
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    topics: list[DeleteRecordsTopicResult]
