"""DeleteTopics (key 20), v0-v6, flexible from v4.

v1   throttle time
v3   TOPIC_DELETION_DISABLED may be answered
v5   error messages; THROTTLING_QUOTA_EXCEEDED                           KIP-599
v6   by id as well as by name                                            KIP-516
"""

from __future__ import annotations

from anabranch.protocol.wire import ZERO_UUID, Int16, Int32, Text, Uuid, always, message, since, until


@message
class DeleteTopicState:
    name: Text | None = always(absent=None)
    """Null when the id says which."""
    topic_id: Uuid


@message
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = since(6, absent=list)
    topic_names: list[Text] = until(5, absent=list)
    timeout_ms: Int32


@message
class DeletableTopicResult:
    name: Text | None = always(nullable_since=6)
    topic_id: Uuid = since(6, absent=ZERO_UUID)
    error_code: Int16
    error_message: Text | None = since(5, absent=None)


@message
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = since(1, absent=0)
    responses: list[DeletableTopicResult]
