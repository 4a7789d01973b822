"""OffsetCommit (key 8), v0-v9, flexible from v8.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Int32, Int64, Text, since


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(6, absent=-1)
    commit_timestamp: Int64 = since(1, absent=-1, until=1)
    committed_metadata: Text | None


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestTopic:
    name: Text
    partitions: list[OffsetCommitRequestPartition]


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequest:
    group_id: Text
    generation_id_or_member_epoch: Int32 = since(1, absent=-1)
    member_id: Text = since(1, absent="")
    group_instance_id: Text | None = since(7, absent=None)
    retention_time_ms: Int64 = since(2, absent=-1, until=4)
    topics: list[OffsetCommitRequestTopic]


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponseTopic:
    name: Text
    partitions: list[OffsetCommitResponsePartition]


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponse:
    throttle_time_ms: Int32 = since(3, absent=0)
    topics: list[OffsetCommitResponseTopic]
