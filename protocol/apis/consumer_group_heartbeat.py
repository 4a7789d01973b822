"""ConsumerGroupHeartbeat (key 68), v0, flexible from v0: what brokers with ZooKeeper refuse of KIP-848."""

from __future__ import annotations

from anabranch.protocol.wire import Int8, Int16, Int32, Text, Uuid, always, message


@message
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@message
class ConsumerGroupHeartbeatRequest:
    group_id: Text
    member_id: Text
    member_epoch: Int32
    instance_id: Text | None = always(absent=None)
    rack_id: Text | None = always(absent=None)
    rebalance_timeout_ms: Int32 = always(absent=-1)
    subscribed_topic_names: list[Text] | None = always(absent=None)
    server_assignor: Text | None = always(absent=None)
    topic_partitions: list[TopicPartitions] | None = always(absent=None)


@message
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None = always(absent=None)
    member_id: Text | None = always(absent=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Int8 = always(absent=-1)
    """In Kafka a struct that may be null (KIP-893): -1 is null, and nothing else is said here."""
