"""DescribeProducers (key 61), v0, flexible from v0."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, Text, always, message


@message
class TopicRequest:
    name: Text
    partition_indexes: list[Int32]


@message
class DescribeProducersRequest:
    topics: list[TopicRequest]


@message
class ProducerState:
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = always(absent=-1)
    last_timestamp: Int64 = always(absent=-1)
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = always(absent=-1)


@message
class PartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: Text | None = always(absent=None)
    active_producers: list[ProducerState]


@message
class TopicResponse:
    name: Text
    partitions: list[PartitionResponse]


@message
class DescribeProducersResponse:
    throttle_time_ms: Int32 = always(absent=0)
    topics: list[TopicResponse]
