"""AlterShareGroupOffsets (key 91), v0, flexible: set the start offsets of a group without members (KIP-932)."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, Text, Uuid, always, message


@message
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32
    start_offset: Int64


@message
class AlterShareGroupOffsetsRequestTopic:
    topic_name: Text
    partitions: list[AlterShareGroupOffsetsRequestPartition]


@message
class AlterShareGroupOffsetsRequest:
    group_id: Text
    topics: list[AlterShareGroupOffsetsRequestTopic]


@message
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32
    error_code: Int16
    error_message: Text | None = always(absent=None)


@message
class AlterShareGroupOffsetsResponseTopic:
    topic_name: Text
    topic_id: Uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition]


@message
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None = always(absent=None)
    responses: list[AlterShareGroupOffsetsResponseTopic]
