"""ShareGroupHeartbeat (key 76), v1, flexible: join a share group, stay in it, or leave it (KIP-932).

v0   early access, gone with Kafka 4.1
v1   the same layout

What is null in a request has not changed since the last one.
"""

from __future__ import annotations

from anabranch.protocol.apis.consumer_group_heartbeat import Assignment
from anabranch.protocol.wire import Int16, Int32, Text, always, message


@message
class ShareGroupHeartbeatRequest:
    group_id: Text
    member_id: Text
    """Made by the member, which keeps it as long as it lives."""
    member_epoch: Int32
    """0: join, or join again; -1: leave; else the epoch that it knows."""
    rack_id: Text | None = always(absent=None)
    subscribed_topic_names: list[Text] | None = always(absent=None)


@message
class ShareGroupHeartbeatResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None = always(absent=None)
    member_id: Text | None = always(absent=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = always(absent=None)
    """The whole of it, where the member does not know it yet."""
