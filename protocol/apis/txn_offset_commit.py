"""TxnOffsetCommit (key 28), v0-v5, flexible from v3.

v3   member and generation of the group                                  KIP-447
v4   TRANSACTION_ABORTABLE may be answered                               KIP-890
v5   the coordinator itself adds the group to the transaction            KIP-890
"""

from __future__ import annotations

from anabranch.protocol.wire import ZERO_UUID, Int16, Int32, Int64, Text, Uuid, always, message, since, tagged


@message
class TxnOffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(2, absent=-1)
    committed_metadata: Text | None


@message
class TxnOffsetCommitRequestTopic:
    name: Text
    partitions: list[TxnOffsetCommitRequestPartition]
    expected_topic_id: Uuid = tagged(2561, since=3, absent=ZERO_UUID)
    """The topic that the offsets were taken in; they mean nothing in another one of its name."""


@message
class TxnOffsetCommitRequest:
    transactional_id: Text
    group_id: Text
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = since(3, absent=-1)
    member_id: Text = since(3, absent="")
    group_instance_id: Text | None = since(3, absent=None)
    topics: list[TxnOffsetCommitRequestTopic]


@message
class TxnOffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@message
class TxnOffsetCommitResponseTopic:
    name: Text
    partitions: list[TxnOffsetCommitResponsePartition]


@message
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32 = always(absent=0)
    topics: list[TxnOffsetCommitResponseTopic]
