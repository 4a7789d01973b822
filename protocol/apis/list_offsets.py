"""ListOffsets (key 2), v0-v11, flexible from v6: the first or last offset, or the one of a timestamp.

v0   several offsets per partition, newest first
v1   one offset and its timestamp                                       KIP-79
v2   isolation level and throttle time                                  KIP-98
v3   the broker answers first and throttles after                       KIP-219
v4   leader epochs, both ways: fencing, and the epoch of what was found KIP-320
v5   OFFSET_NOT_AVAILABLE: a new leader does not know its high watermark yet  KIP-207
v7   timestamp -3: the record with the largest timestamp                KIP-734
v8   timestamp -4: where the local log starts                           KIP-405
v9   timestamp -5: the last offset in tiered storage                    KIP-1005
v10  how long the broker may look in tiered storage                     KIP-1075
v11  timestamp -6: what is to go to tiered storage next                 KIP-1023
"""

from __future__ import annotations

from anabranch.protocol.wire import Int8, Int16, Int32, Int64, Text, message, since, until


@message
class ListOffsetsPartition:
    partition_index: Int32
    current_leader_epoch: Int32 = since(4, absent=-1)
    timestamp: Int64
    """-1: the end of the log; -2: its start; otherwise the first record at or after it."""
    max_num_offsets: Int32 = until(0, absent=1)
    """How many segment starts the answer of v0 has at most."""


@message
class ListOffsetsTopic:
    name: Text
    partitions: list[ListOffsetsPartition]


@message
class ListOffsetsRequest:
    replica_id: Int32
    isolation_level: Int8 = since(2, absent=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = since(10, absent=0)


@message
class ListOffsetsPartitionResponse:
    partition_index: Int32
    error_code: Int16
    old_style_offsets: list[Int64] = until(0, absent=list)
    timestamp: Int64 = since(1, absent=-1)
    """-1 unless a record was looked for, and found."""
    offset: Int64 = since(1, absent=-1)
    leader_epoch: Int32 = since(4, absent=-1)


@message
class ListOffsetsTopicResponse:
    name: Text
    partitions: list[ListOffsetsPartitionResponse]


@message
class ListOffsetsResponse:
    throttle_time_ms: Int32 = since(2, absent=0)
    topics: list[ListOffsetsTopicResponse]
