"""Produce (key 0), v0-v11, flexible from v9.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Int32, Int64, Records, Text, always, since, tagged


@dataclass(slots=True, kw_only=True)
class PartitionProduceData:
    index: Int32
    records: Records | None
    generation: Int32 = tagged(2531, since=9, absent=-1)


@dataclass(slots=True, kw_only=True)
class TopicProduceData:
    name: Text
    partition_data: list[PartitionProduceData]
    undeleted_partition_count: Int32 = tagged(2530, since=9, absent=-1)


@dataclass(slots=True, kw_only=True)
class ProduceRequest:
    transactional_id: Text | None = since(3, absent=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


@dataclass(slots=True, kw_only=True)
class BatchIndexAndErrorMessage:
    batch_index: Int32
    batch_index_error_message: Text | None = always(absent=None)


@dataclass(slots=True, kw_only=True)
class LeaderIdAndEpoch:
    leader_id: Int32 = always(absent=-1)
    leader_epoch: Int32 = always(absent=-1)


@dataclass(slots=True, kw_only=True)
class PartitionProduceResponse:
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = since(2, absent=-1)
    log_start_offset: Int64 = since(5, absent=-1)
    record_errors: list[BatchIndexAndErrorMessage] = since(8, absent=list)
    error_message: Text | None = since(8, absent=None)
    generation: Int32 = tagged(2531, since=9, absent=-1)
    current_leader: LeaderIdAndEpoch = tagged(0, since=10, absent=LeaderIdAndEpoch)


@dataclass(slots=True, kw_only=True)
class TopicProduceResponse:
    name: Text
    partition_responses: list[PartitionProduceResponse]


@dataclass(slots=True, kw_only=True)
class NodeEndpoint:
    node_id: Int32
    host: Text
    port: Int32
    rack: Text | None = always(absent=None)


@dataclass(slots=True, kw_only=True)
class ProduceResponse:
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = since(1, absent=0)
    node_endpoints: list[NodeEndpoint] = tagged(0, since=10, absent=list)
