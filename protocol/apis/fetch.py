"""Fetch (key 1), v0-v17, flexible from v12.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import ZERO_UUID, Int16, Int32, Int64, Int8, Records, Text, Uuid, always, since, tagged, until


@dataclass(slots=True, kw_only=True)
class ReplicaState:
    replica_id: Int32 = always(absent=-1)
    replica_epoch: Int64 = always(absent=-1)


@dataclass(slots=True, kw_only=True)
class FetchPartition:
    partition: Int32
    current_leader_epoch: Int32 = since(9, absent=-1)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = since(12, absent=-1)
    log_start_offset: Int64 = since(5, absent=-1)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = tagged(0, since=17, absent=ZERO_UUID)


@dataclass(slots=True, kw_only=True)
class FetchTopic:
    topic: Text = until(12, absent="")
    topic_id: Uuid = since(13, absent=ZERO_UUID)
    partitions: list[FetchPartition]
    undeleted_partition_count: Int32 = tagged(2530, since=12, absent=-1)


@dataclass(slots=True, kw_only=True)
class ForgottenTopic:
    topic: Text = until(12, absent="")
    topic_id: Uuid = since(13, absent=ZERO_UUID)
    partitions: list[Int32]


@dataclass(slots=True, kw_only=True)
class FetchRequest:
    cluster_id: Text | None = tagged(0, since=12)
    replica_id: Int32 = until(14, absent=-1)
    replica_state: ReplicaState = tagged(1, since=15, absent=ReplicaState)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = since(3, absent=2147483647)
    isolation_level: Int8 = since(4, absent=0)
    session_id: Int32 = since(7, absent=0)
    session_epoch: Int32 = since(7, absent=-1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = since(7, absent=list)
    rack_id: Text = since(11, absent="")


@dataclass(slots=True, kw_only=True)
class EpochEndOffset:
    epoch: Int32 = always(absent=-1)
    end_offset: Int64 = always(absent=-1)


@dataclass(slots=True, kw_only=True)
class LeaderIdAndEpoch:
    leader_id: Int32 = always(absent=-1)
    leader_epoch: Int32 = always(absent=-1)


@dataclass(slots=True, kw_only=True)
class SnapshotId:
    end_offset: Int64 = always(absent=-1)
    epoch: Int32 = always(absent=-1)


@dataclass(slots=True, kw_only=True)
class AbortedTransaction:
    producer_id: Int64
    first_offset: Int64


@dataclass(slots=True, kw_only=True)
class PartitionData:
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = since(4, absent=-1)
    log_start_offset: Int64 = since(5, absent=-1)
    diverging_epoch: EpochEndOffset = tagged(0, since=12, absent=EpochEndOffset)
    current_leader: LeaderIdAndEpoch = tagged(1, since=12, absent=LeaderIdAndEpoch)
    snapshot_id: SnapshotId = tagged(2, since=12, absent=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = since(4, absent=list)
    preferred_read_replica: Int32 = since(11, absent=-1)
    records: Records | None


@dataclass(slots=True, kw_only=True)
class FetchableTopicResponse:
    topic: Text = until(12, absent="")
    topic_id: Uuid = since(13, absent=ZERO_UUID)
    partitions: list[PartitionData]


@dataclass(slots=True, kw_only=True)
class NodeEndpoint:
    node_id: Int32
    host: Text
    port: Int32
    rack: Text | None = always(absent=None)


@dataclass(slots=True, kw_only=True)
class FetchResponse:
    throttle_time_ms: Int32 = since(1, absent=0)
    error_code: Int16 = since(7, absent=0)
    session_id: Int32 = since(7, absent=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = tagged(0, since=16, absent=list)
