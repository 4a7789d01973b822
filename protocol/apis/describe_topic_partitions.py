"""DescribeTopicPartitions (key 75), v0, flexible from v0: topics and partitions, page by page (KIP-966)."""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int16, Int32, Text, Uuid, always, message


@message
class TopicRequest:
    name: Text


@message
class Cursor:
    """The first partition that is to be described, or the first that was not any more."""

    topic_name: Text
    partition_index: Int32


@message
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest]
    """None: all of them."""
    response_partition_limit: Int32 = always(absent=2000)
    cursor: Cursor | None = always(absent=None)


@message
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = always(absent=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = always(absent=None)
    last_known_elr: list[Int32] | None = always(absent=None)
    offline_replicas: list[Int32]


@message
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16
    name: Text | None
    topic_id: Uuid
    is_internal: Boolean = always(absent=False)
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = always(absent=-2147483648)


@message
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = always(absent=None)
    """None: that is all."""
