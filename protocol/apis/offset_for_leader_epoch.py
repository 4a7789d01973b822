"""OffsetForLeaderEpoch (key 23), v0-v4, flexible from v4.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Int32, Int64, Text, always, since


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderPartition:
    partition: Int32
    current_leader_epoch: Int32 = since(2, absent=-1)
    leader_epoch: Int32


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopic:
    topic: Text
    partitions: list[OffsetForLeaderPartition]


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochRequest:
    replica_id: Int32 = since(3, absent=-2)
    topics: list[OffsetForLeaderTopic]


@dataclass(slots=True, kw_only=True)
class EpochEndOffset:
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = since(1, absent=-1)
    end_offset: Int64 = always(absent=-1)


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopicResult:
    topic: Text
    partitions: list[EpochEndOffset]


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = since(2, absent=0)
    topics: list[OffsetForLeaderTopicResult]
