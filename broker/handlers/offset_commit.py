"""OffsetCommit: store the committed offsets of a group (KIP-320, KIP-345, KIP-447).

Versions 0 to 10. v1 may have a commit time per partition, v2 to v4 a retention, v10 has topic ids; v0 is stored in
ZooKeeper (`zookeeper_offsets`). A missing partition, or one with too long metadata, has its own error. Any other error
concerns the group and is set for each partition, because the response has no other field for it.

The offset of a partition that a merge has removed is stored: it stays valid if its index is used again (R14). Kafka's
client commits all its positions before it joins again, and repeats that for its whole poll interval if one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from anabranch.broker.config.broker_settings import INT64_MAX
from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset, TopicPartition
from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers import zookeeper_offsets
from anabranch.broker.handlers.refused_rows import refused_first
from anabranch.broker.handlers.topic_ids import name_them
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

FIRST_VERSION_WITH_TOPIC_IDS: Final = 10

Topic = tuple[str, bytes]
"""The name of a topic, empty if no topic has its id, and its id, zero before v10."""


@handles(OffsetCommitRequest, versions="0-10")
async def offset_commit(ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit the valid offsets; answered when they are stored."""
    if not is_authorized(ctx, Operation.READ, ResourceType.GROUP, request.group_id):
        return make_response(request, {}, lambda *_: ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS:
        name_them(ctx.services.metadata.image, request.topics)
    refused: dict[tuple[Topic, int], ErrorCode] = {}
    accepted: dict[TopicPartition, OffsetCommitRequestPartition] = {}
    for topic in request.topics:
        for one in topic.partitions:
            code = refusal(ctx, topic, one.partition_index)
            if code is ErrorCode.NONE:
                accepted[topic.name, one.partition_index] = one
            else:
                refused[(topic.name, topic.topic_id), one.partition_index] = code
    codes = await commit(ctx, request, accepted) if accepted else {}
    return make_response(request, refused, lambda name, index: codes[name, index])


def refusal(ctx: RequestContext, topic: OffsetCommitRequestTopic, index: int) -> ErrorCode:
    """Return why a partition is refused before anything is stored; NONE if it is not."""
    if ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS and not topic.name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not is_authorized(ctx, Operation.READ, ResourceType.TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = ctx.services.metadata.topic(topic.name)
    if known is None or not known.has_had(index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


async def commit(
    ctx: RequestContext, request: OffsetCommitRequest, accepted: dict[TopicPartition, OffsetCommitRequestPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Store the offsets of these partitions; return the code of each."""
    if ctx.version == 0:
        return {key: await zookeeper_offsets.commit(ctx, request.group_id, *key, one) for key, one in accepted.items()}
    now_ms = ctx.services.now_ms()
    values = {key: value_of(one, request.retention_time_ms, now_ms) for key, one in accepted.items()}
    try:
        too_long = await ctx.services.groups.offsets.commit(request, values, version=ctx.version)
    except KafkaError as error:
        return dict.fromkeys(accepted, error.code)
    return dict.fromkeys(accepted, ErrorCode.NONE) | dict.fromkeys(too_long, ErrorCode.OFFSET_METADATA_TOO_LARGE)


def make_response(
    request: OffsetCommitRequest,
    refused: Mapping[tuple[Topic, int], ErrorCode],
    code_of: Callable[[str, int], ErrorCode],
) -> OffsetCommitResponse:
    """Return the response with the code of each partition, refused partitions first."""
    requested = [
        ((topic.name, topic.topic_id), one.partition_index) for topic in request.topics for one in topic.partitions
    ]
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic[0],
                topic_id=topic[1],
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=index, error_code=refused.get((topic, index)) or code_of(topic[0], index)
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in refused_first(requested, refused).items()
        ]
    )


def value_of(partition: OffsetCommitRequestPartition, retention_ms: int, now_ms: int) -> CommittedOffset:
    """Return the value that the coordinator stores."""
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms if partition.commit_timestamp == -1 else partition.commit_timestamp,
        expire_timestamp_ms=-1 if retention_ms == -1 else min(now_ms + retention_ms, INT64_MAX),
    )
