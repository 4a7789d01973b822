"""ConsumerGroupPosition (key 2530): members of a group exchange their positions (KIP-253 section 7, repaired).

v0  exactly the KIP's layout: reported positions in, remembered positions out, by heartbeat
v1  flexible; -1 means unknown, an error per partition, and a long poll: the answer comes when the *committed*
    offset of an awaited partition reaches `awaited_offset`, or after `max_wait_ms` (rules R9 and R10, K104)
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int16, Int32, Int64, Text, always, message, since


@message
class ConsumerGroupPositionRequestPartition:
    partition: Int32
    need_position: Boolean
    position: Int64
    """The member's own position; -1: it only asks for those of others."""
    awaited_offset: Int64 = since(1, absent=-1)
    """Answer when the committed offset gets here; -1: at once."""


@message
class ConsumerGroupPositionRequestTopic:
    topic: Text
    partitions: list[ConsumerGroupPositionRequestPartition]


@message
class ConsumerGroupPositionRequest:
    group_id: Text
    generation_id: Int32
    member_id: Text
    topics: list[ConsumerGroupPositionRequestTopic]
    max_wait_ms: Int32 = since(1, absent=0)


@message
class ConsumerGroupPositionResponsePartition:
    partition: Int32
    need_position: Boolean
    position: Int64
    error_code: Int16 = since(1, absent=0)


@message
class ConsumerGroupPositionResponseTopic:
    topic: Text
    partitions: list[ConsumerGroupPositionResponsePartition]


@message
class ConsumerGroupPositionResponse:
    throttle_time_ms: Int32 = always(absent=0)
    topics: list[ConsumerGroupPositionResponseTopic]
    error_code: Int16
