"""OffsetForLeaderEpoch (key 23), v0-v4, flexible from v4: where a leader epoch ended.

Followers and consumers truncate by it, and the order gate finds the cuts that a resize made.

v1   the epoch that the end belongs to: the largest one not above the asked
v2   the epoch the client believes in, to fence old ones; throttle time  KIP-320
v3   replica id, so that only followers may read past the high watermark
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
    """-1: a consumer; -2: some debugger, and all that send no id."""
    topics: list[OffsetForLeaderTopic]


@dataclass(slots=True, kw_only=True)
class EpochEndOffset:
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = since(1, absent=-1)
    end_offset: Int64 = always(absent=-1)
    """Exclusive; -1 with epoch -1 when the leader knows nothing as old."""


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopicResult:
    topic: Text
    partitions: list[EpochEndOffset]


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = since(2, absent=0)
    topics: list[OffsetForLeaderTopicResult]
