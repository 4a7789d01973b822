"""OffsetFetch (key 9), v0-v9, flexible from v6.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Boolean, Int16, Int32, Int64, Text, always, since, until


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestTopic:
    name: Text
    partition_indexes: list[Int32]


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestTopics:
    name: Text
    partition_indexes: list[Int32]


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestGroup:
    group_id: Text
    member_id: Text | None = since(9, absent=None)
    member_epoch: Int32 = since(9, absent=-1)
    topics: list[OffsetFetchRequestTopics] | None


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequest:
    group_id: Text = until(7, absent="")
    topics: list[OffsetFetchRequestTopic] | None = until(7, absent=list, nullable_since=2)
    groups: list[OffsetFetchRequestGroup] = since(8, absent=list)
    require_stable: Boolean = since(7, absent=False)


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponsePartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(5, absent=-1)
    metadata: Text | None
    error_code: Int16


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseTopic:
    name: Text
    partitions: list[OffsetFetchResponsePartition]


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponsePartitions:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = always(absent=-1)
    metadata: Text | None
    error_code: Int16


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseTopics:
    name: Text
    partitions: list[OffsetFetchResponsePartitions]


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseGroup:
    group_id: Text
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = always(absent=0)


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponse:
    throttle_time_ms: Int32 = since(3, absent=0)
    topics: list[OffsetFetchResponseTopic] = until(7, absent=list)
    error_code: Int16 = since(2, absent=0, until=7)
    groups: list[OffsetFetchResponseGroup] = since(8, absent=list)
