"""ReadShareGroupStateSummary: return the start offsets of a group in share partitions (KIP-932).

Versions 0 to 1. Source: Kafka's `ShareCoordinatorService`.
"""

from __future__ import annotations

from anabranch.broker.coordinators.share_partitions.share_state import ShareKey
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.share_state_rows import answer_rows
from anabranch.protocol.apis.read_share_group_state_summary import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(ReadShareGroupStateSummaryRequest, versions="0-1")
async def read_share_group_state_summary(
    ctx: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    """Return the start offset and epochs of each partition."""
    coordinator = ctx.services.shares.coordinator

    async def read(key: ShareKey, partition: PartitionData) -> PartitionResult:
        state = coordinator.summary(key)
        if 0 <= partition.leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{partition.leader_epoch} < {state.leader_epoch}")
        return PartitionResult(
            partition=partition.partition,
            error_code=ErrorCode.NONE,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )

    results = await answer_rows(ctx, request, ReadStateSummaryResult, PartitionResult, read)
    return ReadShareGroupStateSummaryResponse(results=results)
