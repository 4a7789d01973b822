"""ListOffsets (key 2), v0-v9, flexible from v6.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Int32, Int64, Int8, Text, since, until


@dataclass(slots=True, kw_only=True)
class ListOffsetsPartition:
    partition_index: Int32
    current_leader_epoch: Int32 = since(4, absent=-1)
    timestamp: Int64
    max_num_offsets: Int32 = until(0, absent=1)


@dataclass(slots=True, kw_only=True)
class ListOffsetsTopic:
    name: Text
    partitions: list[ListOffsetsPartition]


@dataclass(slots=True, kw_only=True)
class ListOffsetsRequest:
    replica_id: Int32
    isolation_level: Int8 = since(2, absent=0)
    topics: list[ListOffsetsTopic]


@dataclass(slots=True, kw_only=True)
class ListOffsetsPartitionResponse:
    partition_index: Int32
    error_code: Int16
    old_style_offsets: list[Int64] = until(0, absent=list)
    timestamp: Int64 = since(1, absent=-1)
    offset: Int64 = since(1, absent=-1)
    leader_epoch: Int32 = since(4, absent=-1)


@dataclass(slots=True, kw_only=True)
class ListOffsetsTopicResponse:
    name: Text
    partitions: list[ListOffsetsPartitionResponse]


@dataclass(slots=True, kw_only=True)
class ListOffsetsResponse:
    throttle_time_ms: Int32 = since(2, absent=0)
    topics: list[ListOffsetsTopicResponse]
