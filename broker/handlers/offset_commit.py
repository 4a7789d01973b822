"""OffsetCommit: store the committed offsets of a group (KIP-320, KIP-345, KIP-447).

Versions 0 to 10. v1 may have a commit time per partition, v2 to v4 a retention, v10 has topic ids; v0 is stored in
ZooKeeper (`zookeeper_offsets`). A missing partition, or one with too long metadata, has its own error. Any other error
concerns the group and is set for each partition, because the response has no other field for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.broker.config.broker_settings import INT64_MAX
from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset, TopicPartition
from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers import zookeeper_offsets
from anabranch.broker.handlers.topic_ids import identify, name_them
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


@handles(OffsetCommitRequest, versions="0-10")
async def offset_commit(ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Resolve topic ids (v10), and commit."""
    if ctx.version < FIRST_VERSION_WITH_TOPIC_IDS:
        return await commit(ctx, request)
    request.topics, unknown = name_them(ctx.services.metadata.image, request.topics)
    response = await commit(ctx, request)
    identify(response.topics, request.topics)
    response.topics += make_response(unknown, lambda *_: ErrorCode.UNKNOWN_TOPIC_ID).topics
    return response


async def commit(ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit the valid offsets; answered when they are replicated."""
    if not is_authorized(ctx, Operation.READ, ResourceType.GROUP, request.group_id):
        return make_response(request.topics, lambda *_: ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if ctx.version == 0:
        return await zookeeper_offsets.commit(ctx, request)
    now_ms = ctx.services.now_ms()
    accepted: dict[TopicPartition, CommittedOffset] = {}
    refused: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        for one in topic.partitions:
            if not is_authorized(ctx, Operation.READ, ResourceType.TOPIC, topic.name):
                refused[topic.name, one.partition_index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif ctx.services.metadata.partition(topic.name, one.partition_index) is None:
                refused[topic.name, one.partition_index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                accepted[topic.name, one.partition_index] = value_of(one, request.retention_time_ms, now_ms)
    outcome = ErrorCode.NONE
    if accepted:
        try:
            too_long = await ctx.services.groups.offsets.commit(request, accepted, version=ctx.version)
            refused |= dict.fromkeys(too_long, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        except KafkaError as error:
            outcome = error.code
    return make_response(request.topics, lambda topic, index: refused.get((topic, index), outcome))


def make_response(
    topics: list[OffsetCommitRequestTopic], code_of: Callable[[str, int], ErrorCode]
) -> OffsetCommitResponse:
    """Return the response with the code of each partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=code_of(topic.name, one.partition_index)
                    )
                    for one in topic.partitions
                ],
            )
            for topic in topics
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
