"""Fetch (key 1), v0-v18, flexible from v12: read record batches, as a consumer or as a follower.

v1   throttle time in the answer
v2   magic 1 may be answered
v3   a limit for the whole answer; partitions are served in the order of the request  KIP-74
v4   isolation level, last stable offset, aborted transactions                        KIP-98
v5   log start offsets, both ways                                                     KIP-107
v6   KAFKA_STORAGE_ERROR may be answered                                              KIP-112
v7   sessions: only what changed is asked and answered                                KIP-227
v8   the broker answers first and throttles after                                     KIP-219
v9   the leader epoch the client believes in, to fence old ones                       KIP-320
v10  Zstandard is allowed                                                             KIP-110
v11  the client's rack, and a closer replica to read from                             KIP-392
v12  flexible; followers learn by fetching where their log diverges                   KIP-595
v13  topics by id                                                                     KIP-516
v14  OFFSET_MOVED_TO_TIERED_STORAGE may be answered to followers                      KIP-405
v15  a follower names its incarnation (broker epoch) in a tagged field                KIP-903
v16  the answer of a broker that does not lead names the leader                       KIP-951
v17  a KRaft voter names its log directory                                            KIP-853
v18  a KRaft follower tells the high watermark that it knows                          KIP-1166
"""

from __future__ import annotations

from anabranch.protocol.apis.common_structs import LeaderIdAndEpoch, NodeEndpoint
from anabranch.protocol.wire import (
    ZERO_UUID,
    Int8,
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
class ReplicaState:
    replica_id: Int32 = always(absent=-1)
    replica_epoch: Int64 = always(absent=-1)
    """The follower's broker epoch: one incarnation of one id."""


@message
class FetchPartition:
    partition: Int32
    current_leader_epoch: Int32 = since(9, absent=-1)
    """The epoch the client believes in; -1 asks for no fencing."""
    fetch_offset: Int64
    last_fetched_epoch: Int32 = since(12, absent=-1)
    """Epoch of the last record the follower has; -1 for consumers."""
    log_start_offset: Int64 = since(5, absent=-1)
    """Only followers say it: how far their log was trimmed."""
    partition_max_bytes: Int32
    replica_directory_id: Uuid = tagged(0, since=17, absent=ZERO_UUID)
    high_watermark: Int64 = tagged(1, since=18, absent=9223372036854775807)


@message
class FetchTopic:
    topic: Text = until(12, absent="")
    topic_id: Uuid = since(13, absent=ZERO_UUID)
    partitions: list[FetchPartition]
    undeleted_partition_count: Int32 = tagged(2530, since=12, absent=-1)


@message
class ForgottenTopic:
    topic: Text = until(12, absent="")
    topic_id: Uuid = since(13, absent=ZERO_UUID)
    partitions: list[Int32]


@message
class FetchRequest:
    cluster_id: Text | None = tagged(0, since=12)
    replica_id: Int32 = until(14, absent=-1)
    """-1 for consumers; a broker's id makes this a follower's fetch."""
    replica_state: ReplicaState = tagged(1, since=15, absent=ReplicaState)
    """Takes over from `replica_id`; consumers leave it out."""
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = since(3, absent=2147483647)
    isolation_level: Int8 = since(4, absent=0)
    """0 reads everything below the high watermark, 1 only what is committed."""
    session_id: Int32 = since(7, absent=0)
    session_epoch: Int32 = since(7, absent=-1)
    """0 opens a session, -1 closes it or asks for none."""
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = since(7, absent=list)
    rack_id: Text = since(11, absent="")


@message
class EpochEndOffset:
    epoch: Int32 = always(absent=-1)
    end_offset: Int64 = always(absent=-1)


@message
class SnapshotId:
    end_offset: Int64 = always(absent=-1)
    epoch: Int32 = always(absent=-1)


@message
class AbortedTransaction:
    producer_id: Int64
    first_offset: Int64


@message
class PartitionData:
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    """-1 beside an error."""
    last_stable_offset: Int64 = since(4, absent=-1)
    log_start_offset: Int64 = since(5, absent=-1)
    diverging_epoch: EpochEndOffset = tagged(0, since=12, absent=EpochEndOffset)
    """Where the follower's log parts from the leader's: truncate there."""
    current_leader: LeaderIdAndEpoch = tagged(1, since=12, absent=LeaderIdAndEpoch)
    snapshot_id: SnapshotId = tagged(2, since=12, absent=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = since(4, absent=list)
    """Null for readers that do not ask for committed records only."""
    preferred_read_replica: Int32 = since(11, absent=-1)
    records: Records | None
    """Whole batches as they are stored; the first may begin before the asked offset."""


@message
class FetchableTopicResponse:
    topic: Text = until(12, absent="")
    topic_id: Uuid = since(13, absent=ZERO_UUID)
    partitions: list[PartitionData]


@message
class FetchResponse:
    throttle_time_ms: Int32 = since(1, absent=0)
    error_code: Int16 = since(7, absent=0)
    """Only about the session; partitions have their own."""
    session_id: Int32 = since(7, absent=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = tagged(0, since=16, absent=list)
