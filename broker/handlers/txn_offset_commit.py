"""TxnOffsetCommit: stage offsets of a group that take effect when a transaction is committed (KIP-98, KIP-447).

Versions 0 to 5. From v3 the producer sends its member id and generation, and is fenced by them; from v5 the broker adds
the offsets to the transaction. A missing or unauthorized partition has its own error. An error of the group or the
transaction is set for all others, also for those with too long metadata. v0 and v1 lack COORDINATOR_LOAD_IN_PROGRESS.
Offsets of removed partitions are accepted (`offset_commit`).
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.broker.coordinators.groups.group_offsets import utf16_length
from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset, TopicPartition
from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.refused_rows import refused_first
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

ALONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""Errors of a partition that do not depend on the other partitions."""
FIRST_VERSION_THAT_WAITS: int = 2
FIRST_VERSION_THAT_MAY_ABORT: int = 4
FIRST_VERSION_THAT_ADDS: int = 5


@handles(TxnOffsetCommitRequest, versions="0-5")
async def txn_offset_commit(ctx: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Stage the valid offsets; answered when they are replicated."""
    outcome = refusal_code(ctx, request)
    if outcome is not ErrorCode.NONE:
        return rows_of(request, lambda _: outcome)
    now_ms = ctx.services.now_ms()
    staged: dict[TopicPartition, CommittedOffset] = {}
    codes: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        for one in topic.partitions:
            key = (topic.name, one.partition_index)
            codes[key] = check_partition(ctx, topic.name, one)
            if codes[key] is ErrorCode.NONE:
                staged[key] = value_of(one, now_ms)
    if any(code not in ALONE for code in codes.values()):
        outcome = await commit(ctx, request, staged)
        for key, code in codes.items():
            if outcome is not ErrorCode.NONE and code not in ALONE:
                codes[key] = outcome
    return rows_of(request, codes.__getitem__)


def refusal_code(ctx: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Return why the client may commit nothing; NONE if that depends on the topics."""
    if not is_authorized(ctx, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not is_authorized(ctx, Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def rows_of(request: TxnOffsetCommitRequest, code_of: Callable[[TopicPartition], ErrorCode]) -> TxnOffsetCommitResponse:
    """Return the response with the code of each partition, refused partitions first."""
    requested = [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
    refused = {key for key in requested if code_of(key) in ALONE}
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=code_of((name, index)))
                    for index in indexes
                ],
            )
            for name, indexes in refused_first(requested, refused).items()
        ]
    )


async def commit(
    ctx: RequestContext, request: TxnOffsetCommitRequest, staged: dict[TopicPartition, CommittedOffset]
) -> ErrorCode:
    """Return the coordinator's error code in terms of the request's version."""
    try:
        await ctx.services.groups.transactions.commit(
            request,
            staged,
            abortable=ctx.version >= FIRST_VERSION_THAT_MAY_ABORT,
            adds=ctx.version >= FIRST_VERSION_THAT_ADDS,
        )
    except KafkaError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and ctx.version < FIRST_VERSION_THAT_WAITS:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return error.code
    return ErrorCode.NONE


def check_partition(ctx: RequestContext, topic: str, partition: TxnOffsetCommitRequestPartition) -> ErrorCode:
    """Return the error of one partition; NONE if its offset can be committed."""
    if not is_authorized(ctx, Operation.READ, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = ctx.services.metadata.topic(topic)
    if known is None or not known.has_had(partition.partition_index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if utf16_length(partition.committed_metadata or "") > ctx.services.settings.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def value_of(partition: TxnOffsetCommitRequestPartition, now_ms: int) -> CommittedOffset:
    """Return the value that the coordinator stores."""
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms,
    )
