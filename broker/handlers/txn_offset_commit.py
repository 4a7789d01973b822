"""TxnOffsetCommit: stage offsets of a group that take effect when a transaction is committed (KIP-98, KIP-447).

Versions 0 to 5. From v3 the producer sends its member id and generation, and is fenced by them; from v5 the broker adds
the offsets to the transaction. A missing or unauthorized partition has its own error. An error of the group or the
transaction is set for all others, also for those with too long metadata. v0 and v1 lack COORDINATOR_LOAD_IN_PROGRESS.
Offsets of removed partitions are accepted (`offset_commit`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.broker.coordinators.groups.group_offsets import utf16_length
from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset, TopicPartition
from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles, refuse_if_lost
from anabranch.broker.handlers.offset_commit import any_is_deleted, expected_topic
from anabranch.broker.handlers.refused_rows import refused_first
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.coordinators.groups.group_transactions import PreparedCommit
    from anabranch.broker.metadata.metadata_cache import ClusterImage, TopicImage

FIRST_VERSION_THAT_WAITS: int = 2
FIRST_VERSION_THAT_MAY_ABORT: int = 4
FIRST_VERSION_THAT_ADDS: int = 5


@handles(TxnOffsetCommitRequest, versions="0-5")
async def txn_offset_commit(ctx: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Stage the valid offsets; answered when they are replicated."""
    turns, refused, too_long = YieldBudget(), dict[TopicPartition, ErrorCode](), dict[TopicPartition, ErrorCode]()
    outcome = refusal_code(ctx, request)
    if outcome is not ErrorCode.NONE:
        return await make_response(request, turns, refused, too_long, outcome)
    now_ms, metadata_max = ctx.services.now_ms(), ctx.services.settings.offset_metadata_max_bytes
    image = ctx.services.metadata.image
    staged: dict[TopicPartition, CommittedOffset] = {}
    for topic in request.topics:
        code, known = topic_refusal(ctx, topic, image)
        for one in topic.partitions:
            key = (topic.name, one.partition_index)
            if known is None or not known.has_had(one.partition_index):
                refused[key] = code
            elif one.committed_metadata and utf16_length(one.committed_metadata) > metadata_max:
                too_long[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                staged[key] = value_of(one, now_ms)
            if turns.is_spent():
                await asyncio.sleep(0)
    if staged or too_long:
        try:
            prepared = await prepare(ctx, request, staged, turns)
            refuse_if_lost(ctx)
            if any_is_deleted(request.topics, image, ctx.services.metadata.image):
                return await txn_offset_commit(ctx, request)
            await ctx.services.groups.transactions.commit(request, prepared)
        except KafkaError as error:
            outcome = code_in_version(error.code, ctx.version)
    return await make_response(request, turns, refused, too_long if outcome is ErrorCode.NONE else {}, outcome)


def refusal_code(ctx: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Return why the client may commit nothing; NONE if that depends on the topics."""
    if not is_authorized(ctx, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not is_authorized(ctx, Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


async def make_response(
    request: TxnOffsetCommitRequest,
    turns: YieldBudget,
    refused: Mapping[TopicPartition, ErrorCode],
    too_long: Mapping[TopicPartition, ErrorCode],
    outcome: ErrorCode,
) -> TxnOffsetCommitResponse:
    """Return the response, refused partitions first; a partition without a code of its own has the `outcome`."""
    if turns.is_spent(sum(len(topic.partitions) for topic in request.topics)):
        await asyncio.sleep(0)
    requested = [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
    topics = []
    for name, indexes in refused_first(requested, refused).items():
        if turns.is_spent(len(indexes)):
            await asyncio.sleep(0)
        partitions = [
            TxnOffsetCommitResponsePartition(
                partition_index=index,
                error_code=refused.get((name, index)) or too_long.get((name, index), outcome),
            )
            for index in indexes
        ]
        topics.append(TxnOffsetCommitResponseTopic(name=name, partitions=partitions))
    return TxnOffsetCommitResponse(topics=topics)


async def prepare(
    ctx: RequestContext,
    request: TxnOffsetCommitRequest,
    staged: Mapping[TopicPartition, CommittedOffset],
    turns: YieldBudget,
) -> PreparedCommit:
    """Do what precedes the commit, and may take a while. Raises KafkaError."""
    return await ctx.services.groups.transactions.prepare(
        request,
        staged,
        turns,
        abortable=ctx.version >= FIRST_VERSION_THAT_MAY_ABORT,
        adds=ctx.version >= FIRST_VERSION_THAT_ADDS,
    )


def code_in_version(code: ErrorCode, version: int) -> ErrorCode:
    """Return the coordinator's error code in terms of the request's version."""
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_VERSION_THAT_WAITS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def topic_refusal(
    ctx: RequestContext, topic: TxnOffsetCommitRequestTopic, image: ClusterImage
) -> tuple[ErrorCode, TopicImage | None]:
    """Return the error of missing partitions of a topic; the topic, unless all of them are refused."""
    if not is_authorized(ctx, Operation.READ, ResourceType.TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, expected_topic(topic, image)


def value_of(partition: TxnOffsetCommitRequestPartition, now_ms: int) -> CommittedOffset:
    """Return the value that the coordinator stores."""
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms,
    )
