"""ShareFetch (key 78), v1-v2, flexible: acquire records of share partitions, and acknowledge others (KIP-932).

v0   early access, gone with Kafka 4.1
v1   at most so many records; the answer tells how long they are locked
v2   exactly so many records, if asked; acknowledgements that only renew a lock       KIP-1206, KIP-1222
"""

from __future__ import annotations

from anabranch.protocol.apis.common_structs import LeaderIdAndEpoch, NodeEndpoint
from anabranch.protocol.apis.share_acknowledge import AcknowledgementBatch
from anabranch.protocol.wire import Boolean, Int8, Int16, Int32, Int64, Records, Text, Uuid, always, message, since


@message
class FetchPartition:
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@message
class FetchTopic:
    topic_id: Uuid
    partitions: list[FetchPartition]


@message
class ForgottenTopic:
    topic_id: Uuid
    partitions: list[Int32]


@message
class ShareFetchRequest:
    group_id: Text | None = always(absent=None)
    member_id: Text | None
    share_session_epoch: Int32
    """0 opens a session, -1 ends it; else one more than the last."""
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = always(absent=2147483647)
    max_records: Int32 = since(1, absent=500)
    batch_size: Int32 = since(1, absent=500)
    """How many records acquired together are best for the member."""
    share_acquire_mode: Int8 = since(2, absent=0)
    """0: to the end of the batch in which `max_records` ends; 1: no record more."""
    is_renew_ack: Boolean = since(2, absent=False)
    topics: list[FetchTopic]
    """Those that are new to the session, or have acknowledgements."""
    forgotten_topics_data: list[ForgottenTopic]


@message
class AcquiredRecords:
    first_offset: Int64
    last_offset: Int64
    """Inclusive."""
    delivery_count: Int16


@message
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: Text | None = always(absent=None)
    acknowledge_error_code: Int16
    acknowledge_error_message: Text | None = always(absent=None)
    current_leader: LeaderIdAndEpoch
    records: Records
    """Whole batches, which may hold records that were not acquired."""
    acquired_records: list[AcquiredRecords]


@message
class ShareFetchableTopicResponse:
    topic_id: Uuid
    partitions: list[PartitionData]


@message
class ShareFetchResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None = always(absent=None)
    acquisition_lock_timeout_ms: Int32 = since(1, absent=0)
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]
    """Where to find the leaders that the partitions name."""
