"""DeleteShareGroupOffsets (key 92), v0, flexible: delete the topics of a group without members (KIP-932)."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Text, Uuid, always, message


@message
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: Text


@message
class DeleteShareGroupOffsetsRequest:
    group_id: Text
    topics: list[DeleteShareGroupOffsetsRequestTopic]


@message
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: Text
    topic_id: Uuid
    error_code: Int16
    error_message: Text | None = always(absent=None)


@message
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None = always(absent=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic]
