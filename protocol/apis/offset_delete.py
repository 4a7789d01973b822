"""OffsetDelete (key 47), v0, never flexible."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Int32, Text, always


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequestPartition:
    partition_index: Int32


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequestTopic:
    name: Text
    partitions: list[OffsetDeleteRequestPartition]


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequest:
    group_id: Text
    topics: list[OffsetDeleteRequestTopic]


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponseTopic:
    name: Text
    partitions: list[OffsetDeleteResponsePartition]


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponse:
    error_code: Int16
    throttle_time_ms: Int32 = always(absent=0)
    topics: list[OffsetDeleteResponseTopic]
