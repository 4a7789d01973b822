"""OffsetForLeaderEpoch: the offset at which a leader epoch ended (KIP-101, KIP-320; rule R7 finds boundaries with it).

A broker answers only as leader, and only if the request names the present epoch, or none: a leader that has not
adopted a resize yet answers UNKNOWN_LEADER_EPOCH instead of an end that may still move. Ends are exclusive.
Versions 0 to 4. Coordinators that hold gates for others also learn where what can be delivered below an end ends.
"""

from __future__ import annotations

from functools import partial

from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, answer_each, handles
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
    """Answer each partition on its own."""
    turns = YieldBudget()
    return OffsetForLeaderEpochResponse(
        topics=[
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
    )


def end_of_epoch(
    ctx: RequestContext, topic: str, asked: OffsetForLeaderPartition, *, consumer: bool = True
) -> EpochEndOffset:
    """The largest epoch not above the one asked for, and its end; -1 when there is none."""
    if not is_authorized(ctx, Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        authorize(ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic)
    partition = ctx.services.replicas.leader_of(topic, asked.partition)
    partition.check_epoch(asked.current_leader_epoch)
    if (
        consumer
        and partition.generation
        and asked.leader_epoch < partition.leader_epoch
        and not partition.check_not_superseded
    ):
        # The end of a segment opens gates: it must not grow when another replica leads next (I2).
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE, f"the followers of {topic}-{asked.partition} are not heard yet"
        )
    log = partition.log
    epoch, end = log.epochs.end_offset_for(asked.leader_epoch, log.log_end_offset)
    row = EpochEndOffset(error_code=0, partition=asked.partition, leader_epoch=epoch, end_offset=end)
    if asked.deliverable:
        row.log_start_offset = log.log_start_offset
        if asked.leader_epoch < partition.leader_epoch:
            if partition.last_stable_offset < min(end, log.log_end_offset):
                # What an open transaction has below the cut may be handed out, or not.
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{topic}-{asked.partition} is not stable up to {end}")
            row.deliverable_end = deliverable_end(log, end)
    return row


def refuse(asked: OffsetForLeaderPartition, code: ErrorCode) -> EpochEndOffset:
    """The row of a refused partition."""
    return EpochEndOffset(error_code=code, partition=asked.partition)
