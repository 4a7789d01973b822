"""ConsumerGroupHeartbeat (key 68), v0-v1, flexible from v0: join a consumer group, stay in it, or leave it (KIP-848).

v1   topics by a regular expression; the member makes its own id            KIP-848, KIP-1082

What is null in a request has not changed since the last one.
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int16, Int32, Text, Uuid, always, message, since, tagged


@message
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@message
class ConsumerGroupHeartbeatRequest:
    group_id: Text
    member_id: Text
    member_epoch: Int32
    """0: join, or join again; -1: leave; -2: a static member leaves for a while; else the epoch that it knows."""
    instance_id: Text | None = always(absent=None)
    rack_id: Text | None = always(absent=None)
    rebalance_timeout_ms: Int32 = always(absent=-1)
    subscribed_topic_names: list[Text] | None = always(absent=None)
    subscribed_topic_regex: Text | None = since(1, absent=None)
    server_assignor: Text | None = always(absent=None)
    topic_partitions: list[TopicPartitions] | None = always(absent=None)
    """What the member owns."""
    holds_gates: Boolean = tagged(2547, since=0, absent=False)
    """Our own: the member holds its gates itself (KIP-253), so nothing has to be withheld from it."""
    asks_session_timeout: Boolean = tagged(2553, since=0, absent=False)
    """Our own: the response shall carry the session timeout that the coordinator enforces."""


@message
class Assignment:
    topic_partitions: list[TopicPartitions]


@message
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None = always(absent=None)
    member_id: Text | None = always(absent=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = always(absent=None)
    """The whole of it, where the member does not know it yet."""
    session_timeout_ms: Int32 = tagged(2553, since=0, absent=-1)
    """Our own: after so much silence the member is out, counted from this request; only for members that ask."""
