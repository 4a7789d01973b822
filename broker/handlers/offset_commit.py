"""OffsetCommit: store the committed offsets of a group (KIP-320, KIP-345, KIP-447).

Versions 0 to 10. v1 may have a commit time per partition, v2 to v4 a retention, v10 has topic ids; v0 is stored in
ZooKeeper (`zookeeper_offsets`). A missing partition, or one with too long metadata, has its own error. Any other error
concerns the group and is set for each partition, because the response has no other field for it.

The offset of a partition that a merge has removed is stored: it stays valid if its index is used again (R14). Kafka's
client commits all its positions before it joins again, and repeats that for its whole poll interval if one is refused.
Offsets of this project's consumers name the topic that they were taken in (`expected_topic_id`): in another one of its
name they would let the group pass over records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.broker_settings import INT64_MAX
from anabranch.broker.coordinators.groups.group_offsets import encode, utf16_length
from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset, TopicPartition
from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles, refuse_if_lost
from anabranch.broker.handlers import zookeeper_offsets
from anabranch.broker.handlers.refused_rows import refused_first
from anabranch.broker.handlers.topic_ids import name_them
from anabranch.broker.tasks.yield_budget import YieldBudget
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
from anabranch.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage, TopicImage
    from anabranch.protocol.apis.txn_offset_commit import TxnOffsetCommitRequestTopic

FIRST_VERSION_WITH_TOPIC_IDS: Final = 10

Row = tuple[tuple[str, bytes], int]
"""A partition: the name of its topic, empty if no topic has its id; the topic's id, zero before v10; its index."""


@handles(OffsetCommitRequest, versions="0-10")
async def offset_commit(ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit the valid offsets; answered when they are stored."""
    turns, refused = YieldBudget(), dict[Row, ErrorCode]()
    if not is_authorized(ctx, Operation.READ, ResourceType.GROUP, request.group_id):
        return await make_response(request, turns, refused, {}, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    image = ctx.services.metadata.image
    if ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS:
        for topic in name_them(image, request.topics)[1]:
            topic.name = ""
    accepted: dict[TopicPartition, OffsetCommitRequestPartition] = {}
    for topic in request.topics:
        code, known = refusal(ctx, topic, image)
        for one in topic.partitions:
            index = one.partition_index
            if known is not None and known.has_had(index):
                accepted[topic.name, index] = one
            else:
                refused[(topic.name, topic.topic_id), index] = code
            if turns.is_spent():
                await asyncio.sleep(0)
    codes, outcome = dict[TopicPartition, ErrorCode](), ErrorCode.NONE
    if ctx.version == 0:
        for key, one in accepted.items():
            codes[key] = await zookeeper_offsets.commit(ctx, request.group_id, *key, one)
    elif accepted:
        groups = ctx.services.groups
        values, codes = await values_of(ctx, request, accepted, turns)
        records = await encode(groups.journal, request.group_id, values, turns)
        refuse_if_lost(ctx)
        if any_is_deleted(request.topics, image, ctx.services.metadata.image):
            return await offset_commit(ctx, request)
        try:
            await groups.offsets.commit(request, values, records, accepted.keys(), version=ctx.version)
        except KafkaError as error:
            codes, outcome = {}, error.code
    return await make_response(request, turns, refused, codes, outcome)


def refusal(
    ctx: RequestContext, topic: OffsetCommitRequestTopic, image: ClusterImage
) -> tuple[ErrorCode, TopicImage | None]:
    """Return why partitions of a topic are refused before anything is stored; the topic, if not all of them are."""
    if ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS and not topic.name:
        return ErrorCode.UNKNOWN_TOPIC_ID, None
    if not is_authorized(ctx, Operation.READ, ResourceType.TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, expected_topic(topic, image)


def expected_topic(
    topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic, image: ClusterImage
) -> TopicImage | None:
    """Return the topic that offsets were taken in; None if there is none, or another one of its name."""
    known = image.topics.get(topic.name)
    if known is not None and topic.expected_topic_id not in (ZERO_UUID, known.topic_id):
        return None
    return known


async def values_of(
    ctx: RequestContext,
    request: OffsetCommitRequest,
    accepted: Mapping[TopicPartition, OffsetCommitRequestPartition],
    turns: YieldBudget,
) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, ErrorCode]]:
    """Return the values to store, and the codes of partitions with too long metadata."""
    now_ms, metadata_max = ctx.services.now_ms(), ctx.services.settings.offset_metadata_max_bytes
    values: dict[TopicPartition, CommittedOffset] = {}
    too_long: dict[TopicPartition, ErrorCode] = {}
    for key, one in accepted.items():
        if one.committed_metadata and utf16_length(one.committed_metadata) > metadata_max:
            too_long[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            values[key] = value_of(one, request.retention_time_ms, now_ms)
        if turns.is_spent():
            await asyncio.sleep(0)
    return values, too_long


def any_is_deleted(
    topics: Iterable[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic], before: ClusterImage, now: ClusterImage
) -> bool:
    """Return whether one of these topics was deleted; a new topic may have its name."""
    return now is not before and any(
        (known := before.topics.get(topic.name)) is not None
        and ((newer := now.topics.get(topic.name)) is None or newer.topic_id != known.topic_id)
        for topic in topics
    )


async def make_response(
    request: OffsetCommitRequest,
    turns: YieldBudget,
    refused: Mapping[Row, ErrorCode],
    codes: Mapping[TopicPartition, ErrorCode],
    outcome: ErrorCode,
) -> OffsetCommitResponse:
    """Return the response, refused partitions first; a partition without a code has the `outcome`."""
    if turns.is_spent(sum(len(topic.partitions) for topic in request.topics)):
        await asyncio.sleep(0)
    requested = [
        ((topic.name, topic.topic_id), one.partition_index) for topic in request.topics for one in topic.partitions
    ]
    topics = []
    for topic, indexes in refused_first(requested, refused).items():
        if turns.is_spent(len(indexes)):
            await asyncio.sleep(0)
        topics.append(
            OffsetCommitResponseTopic(
                name=topic[0],
                topic_id=topic[1],
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=index,
                        error_code=refused.get((topic, index)) or codes.get((topic[0], index), outcome),
                    )
                    for index in indexes
                ],
            )
        )
    return OffsetCommitResponse(topics=topics)


def value_of(partition: OffsetCommitRequestPartition, retention_ms: int, now_ms: int) -> CommittedOffset:
    """Return the value that the coordinator stores."""
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms if partition.commit_timestamp == -1 else partition.commit_timestamp,
        expire_timestamp_ms=-1 if retention_ms == -1 else min(now_ms + retention_ms, INT64_MAX),
    )
