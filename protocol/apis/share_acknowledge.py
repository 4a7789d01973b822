"""ShareAcknowledge (key 79), v1-v2, flexible: acknowledge records that a member has acquired (KIP-932).

v0   early access, gone with Kafka 4.1
v1   the same layout
v2   acknowledgements that only renew a lock                                          KIP-1222
"""

from __future__ import annotations

from anabranch.protocol.apis.common_structs import LeaderIdAndEpoch, NodeEndpoint
from anabranch.protocol.wire import Boolean, Int8, Int16, Int32, Int64, Text, Uuid, always, message, since


@message
class AcknowledgementBatch:
    first_offset: Int64
    last_offset: Int64
    """Inclusive."""
    acknowledge_types: list[Int8]
    """One for all, or one for each offset: 0 there is no record, 1 accept, 2 release, 3 reject, 4 renew."""


@message
class AcknowledgePartition:
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@message
class AcknowledgeTopic:
    topic_id: Uuid
    partitions: list[AcknowledgePartition]


@message
class ShareAcknowledgeRequest:
    group_id: Text | None = always(absent=None)
    member_id: Text | None
    share_session_epoch: Int32
    """-1 ends the session; else one more than the last."""
    is_renew_ack: Boolean = since(2, absent=False)
    topics: list[AcknowledgeTopic]


@message
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: Text | None = always(absent=None)
    current_leader: LeaderIdAndEpoch


@message
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid
    partitions: list[PartitionData]


@message
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None = always(absent=None)
    acquisition_lock_timeout_ms: Int32 = since(2, absent=0)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]
    """Where to find the leaders that the partitions name."""
