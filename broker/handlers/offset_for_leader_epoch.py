"""OffsetForLeaderEpoch: find the end offset of a leader epoch (KIP-101, KIP-320); R7 uses it for boundaries.

Only a leader answers, and only if the request has the current epoch or none. A leader that has not adopted a resize
answers UNKNOWN_LEADER_EPOCH, because the end could still change. Ends are exclusive. Versions 0 to 4. Coordinators that
enforce gates also request the end of the deliverable records.
"""

from __future__ import annotations

from functools import partial

from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, answer_each, handles
from anabranch.broker.handlers.refused_rows import unauthorized_last
from anabranch.broker.storage.deliverable import deliverable_end
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(OffsetForLeaderEpochRequest, versions="0-4")
async def offset_for_leader_epoch(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Find the end offset in each partition separately."""
    turns = YieldBudget()
    topics = [
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=await answer_each(
                turns,
                topic.partitions,
                partial(end_of_epoch, ctx, topic.topic, consumer=request.replica_id < 0),
                refuse,
            ),
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(topics=unauthorized_last(topics))


def end_of_epoch(
    ctx: RequestContext, topic: str, requested: OffsetForLeaderPartition, *, consumer: bool = True
) -> EpochEndOffset:
    """Return the largest epoch not above the requested one, and its end; -1 if there is none."""
    if not is_authorized(ctx, Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        authorize(ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic)
    partition = ctx.services.replicas.partition(topic, requested.partition)
    partition.check_epoch(requested.current_leader_epoch)
    partition.check_leader()
    if (
        consumer
        and partition.generation
        and requested.leader_epoch < partition.leader_epoch
        and not partition.has_all_earlier_records
    ):
        # The end of a key epoch opens gates, so it must not grow under the next leader (I2).
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE, f"no follower of {topic}-{requested.partition} has fetched yet"
        )
    log = partition.log
    epoch, end = log.epochs.end_offset_for(requested.leader_epoch, log.log_end_offset)
    row = EpochEndOffset(error_code=0, partition=requested.partition, leader_epoch=epoch, end_offset=end)
    if requested.deliverable:
        row.log_start_offset = log.log_start_offset
        if requested.leader_epoch < partition.leader_epoch:
            if partition.last_stable_offset < min(end, log.log_end_offset):
                # Records of an open transaction below the cut may become deliverable.
                raise KafkaError(
                    ErrorCode.OFFSET_NOT_AVAILABLE, f"{topic}-{requested.partition} is not stable up to {end}"
                )
            try:
                row.deliverable_end = deliverable_end(log, end)
            except OSError as reason:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition!r}: {reason}") from reason
    return row


def refuse(requested: OffsetForLeaderPartition, code: ErrorCode) -> EpochEndOffset:
    """Return the row of a refused partition."""
    return EpochEndOffset(error_code=code, partition=requested.partition)
