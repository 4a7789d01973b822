"""OffsetForLeaderEpoch (key 23), v0-v4, flexible from v4: the end offset of a leader epoch.

Followers and consumers truncate by it, and the order gate finds the cuts that a resize made.

v1   the epoch that the end belongs to: the largest one not above the asked
v2   the epoch the client believes in, to fence old ones; throttle time  KIP-320
v3   replica id, so that only followers may read past the high watermark
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int16, Int32, Int64, Text, always, message, since, tagged


@message
class OffsetForLeaderPartition:
    partition: Int32
    current_leader_epoch: Int32 = since(2, absent=-1)
    leader_epoch: Int32
    deliverable: Boolean = tagged(2545, since=4, absent=False)
    """Whether a coordinator that holds gates for others asks: how far has a group to commit?"""


@message
class OffsetForLeaderTopic:
    topic: Text
    partitions: list[OffsetForLeaderPartition]


@message
class OffsetForLeaderEpochRequest:
    replica_id: Int32 = since(3, absent=-2)
    """-1: a consumer; -2: some debugger, and all that send no id."""
    topics: list[OffsetForLeaderTopic]


@message
class EpochEndOffset:
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = since(1, absent=-1)
    end_offset: Int64 = always(absent=-1)
    """Exclusive; -1 with epoch -1 when the leader knows nothing as old."""
    deliverable_end: Int64 = tagged(2545, since=4, absent=-1)
    """Behind the last record below the end that consumers may read; set if the request has `deliverable`."""
    log_start_offset: Int64 = tagged(2542, since=4, absent=-1)
    """Set if the request has `deliverable`."""


@message
class OffsetForLeaderTopicResult:
    topic: Text
    partitions: list[EpochEndOffset]


@message
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = since(2, absent=0)
    topics: list[OffsetForLeaderTopicResult]
