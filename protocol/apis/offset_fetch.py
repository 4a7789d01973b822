"""OffsetFetch (key 9), v0-v10, flexible from v6: return the committed offsets of groups.

v0   from ZooKeeper; sent by no client in use
v1   from the group coordinator
v2   null means every topic of the group; an error for the whole answer  KIP-88
v3   throttle time
v5   leader epoch of the committed position                              KIP-320
v7   wait for open transactions instead of answering what may vanish     KIP-447
v8   many groups at once                                                 KIP-709
v9   member id and epoch, for the new group protocol                     KIP-848
v10  topics by id                                                        KIP-848
"""

from __future__ import annotations

from anabranch.protocol.wire import ZERO_UUID, Boolean, Int16, Int32, Int64, Text, Uuid, always, message, since, until


@message
class OffsetFetchRequestTopic:
    name: Text
    partition_indexes: list[Int32]


@message
class OffsetFetchRequestTopics:
    name: Text = until(9, absent="")
    topic_id: Uuid = since(10, absent=ZERO_UUID)
    partition_indexes: list[Int32]


@message
class OffsetFetchRequestGroup:
    group_id: Text
    member_id: Text | None = since(9, absent=None)
    member_epoch: Int32 = since(9, absent=-1)
    topics: list[OffsetFetchRequestTopics] | None


@message
class OffsetFetchRequest:
    group_id: Text = until(7, absent="")
    topics: list[OffsetFetchRequestTopic] | None = until(7, absent=list, nullable_since=2)
    groups: list[OffsetFetchRequestGroup] = since(8, absent=list)
    require_stable: Boolean = since(7, absent=False)
    """Answer UNSTABLE_OFFSET_COMMIT while a transaction may still change it."""


@message
class OffsetFetchResponsePartition:
    partition_index: Int32
    committed_offset: Int64
    """-1: nothing was committed."""
    committed_leader_epoch: Int32 = since(5, absent=-1)
    metadata: Text | None
    error_code: Int16


@message
class OffsetFetchResponseTopic:
    name: Text
    partitions: list[OffsetFetchResponsePartition]


@message
class OffsetFetchResponsePartitions:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = always(absent=-1)
    metadata: Text | None
    error_code: Int16


@message
class OffsetFetchResponseTopics:
    name: Text = until(9, absent="")
    topic_id: Uuid = since(10, absent=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions]


@message
class OffsetFetchResponseGroup:
    group_id: Text
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = always(absent=0)


@message
class OffsetFetchResponse:
    throttle_time_ms: Int32 = since(3, absent=0)
    topics: list[OffsetFetchResponseTopic] = until(7, absent=list)
    error_code: Int16 = since(2, absent=0, until=7)
    groups: list[OffsetFetchResponseGroup] = since(8, absent=list)
