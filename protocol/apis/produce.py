"""Produce (key 0), v0-v13, flexible from v9: append record batches to partitions this broker leads.

v1   throttle time in the answer
v2   timestamps in the records, so the time of a log append goes back to the producer
v3   record batch v2 and transactional ids: exactly-once                            KIP-98
v4   KAFKA_STORAGE_ERROR may be answered                                            KIP-112
v5   log start offset, so that a producer can tell trimmed from lost
v6   the broker answers first and throttles after                                   KIP-219
v7   Zstandard is allowed                                                           KIP-110
v8   which records were refused, and why                                            KIP-467
v9   flexible; ours: generation and undeleted partition count as tagged fields      KIP-253, D3
v10  the answer of a broker that does not lead names the leader                     KIP-951
v11  TRANSACTION_ABORTABLE may be answered                                          KIP-890
v12  the leader itself adds the partition to the transaction                        KIP-890
v13  topics by id                                                                   KIP-516

With acks=0 there is no answer at all.
"""

from __future__ import annotations

from anabranch.protocol.apis.common_structs import LeaderIdAndEpoch, NodeEndpoint
from anabranch.protocol.wire import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Records,
    Text,
    Uuid,
    always,
    message,
    since,
    tagged,
    until,
)


@message
class PartitionProduceData:
    index: Int32
    records: Records | None
    """One batch of magic 2 from v3 on; older versions carry message sets."""
    generation: Int32 = tagged(2531, since=9, absent=-1)
    """The class generation the producer hashed with (R1); -1 is a client that knows nothing of resizes."""


@message
class TopicProduceData:
    name: Text = until(12, absent="")
    topic_id: Uuid = since(13, absent=ZERO_UUID)
    partition_data: list[PartitionProduceData]
    undeleted_partition_count: Int32 = tagged(2530, since=9, absent=-1)
    """How many partitions the producer hashes over."""
    expected_topic_id: Uuid = tagged(2561, since=9, absent=ZERO_UUID)
    """The topic whose partitions the producer knows; another one of its name may have other partitions."""


@message
class ProduceRequest:
    transactional_id: Text | None = since(3, absent=None)
    acks: Int16
    """0: no answer; 1: when the leader has it; -1: when the whole ISR has it."""
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


@message
class BatchIndexAndErrorMessage:
    batch_index: Int32
    batch_index_error_message: Text | None = always(absent=None)


@message
class PartitionProduceResponse:
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = since(2, absent=-1)
    """-1 unless the topic gives records the broker's time."""
    log_start_offset: Int64 = since(5, absent=-1)
    record_errors: list[BatchIndexAndErrorMessage] = since(8, absent=list)
    error_message: Text | None = since(8, absent=None)
    generation: Int32 = tagged(2531, since=9, absent=-1)
    """The broker's own, beside INVALID_PARTITION_METADATA."""
    first_generation: Int32 = tagged(2555, since=9, absent=-1)
    """The one with which a partition of a reused index began, beside INVALID_PARTITION_METADATA (R14, K504)."""
    current_leader: LeaderIdAndEpoch = tagged(0, since=10, absent=LeaderIdAndEpoch)
    """The present leader, beside NOT_LEADER_OR_FOLLOWER."""


@message
class TopicProduceResponse:
    name: Text = until(12, absent="")
    topic_id: Uuid = since(13, absent=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse]


@message
class ProduceResponse:
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = since(1, absent=0)
    node_endpoints: list[NodeEndpoint] = tagged(0, since=10, absent=list)
