"""OffsetCommit (key 8), v0-v10, flexible from v8: store the committed offsets of a group.

v0   kept in ZooKeeper; sent by no client in use
v1   kept by the group coordinator; generation and member; a timestamp per partition
v2   retention time per commit instead of the timestamp
v3   throttle time
v5   retention belongs to the broker                                     KIP-211
v6   leader epoch of the committed position                              KIP-320
v7   static members                                                      KIP-345
v9   the new group protocol reads the generation as a member epoch       KIP-848
v10  topics by id                                                        KIP-848
"""

from __future__ import annotations

from anabranch.protocol.wire import ZERO_UUID, Int16, Int32, Int64, Text, Uuid, message, since, tagged, until


@message
class OffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    """The next one to read, not the last one read."""
    committed_leader_epoch: Int32 = since(6, absent=-1)
    commit_timestamp: Int64 = since(1, absent=-1, until=1)
    committed_metadata: Text | None


@message
class OffsetCommitRequestTopic:
    name: Text = until(9, absent="")
    topic_id: Uuid = since(10, absent=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition]
    expected_topic_id: Uuid = tagged(2561, since=8, absent=ZERO_UUID)
    """The topic that the offsets were taken in; they mean nothing in another one of its name."""


@message
class OffsetCommitRequest:
    group_id: Text
    generation_id_or_member_epoch: Int32 = since(1, absent=-1)
    """-1 with an empty member id: a commit from outside of the group."""
    member_id: Text = since(1, absent="")
    group_instance_id: Text | None = since(7, absent=None)
    retention_time_ms: Int64 = since(2, absent=-1, until=4)
    """-1 leaves it to the broker."""
    topics: list[OffsetCommitRequestTopic]


@message
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@message
class OffsetCommitResponseTopic:
    name: Text = until(9, absent="")
    topic_id: Uuid = since(10, absent=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition]


@message
class OffsetCommitResponse:
    throttle_time_ms: Int32 = since(3, absent=0)
    topics: list[OffsetCommitResponseTopic]
