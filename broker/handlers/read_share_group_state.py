"""ReadShareGroupState: return the state of a group to the leaders of share partitions (KIP-932).

Version 0. Source: Kafka's `ShareCoordinatorService`.
"""

from __future__ import annotations

from anabranch.broker.coordinators.share_partitions.share_state import ShareKey
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.share_state_rows import answer_rows
from anabranch.protocol.apis.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
)
from anabranch.protocol.apis.write_share_group_state import StateBatch
from anabranch.protocol.errors import ErrorCode


@handles(ReadShareGroupStateRequest, versions="0")
async def read_share_group_state(
    ctx: RequestContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    """Return the whole state of each partition."""
    coordinator = ctx.services.shares.coordinator

    async def read(key: ShareKey, partition: PartitionData) -> PartitionResult:
        state = await coordinator.read(key, partition.leader_epoch, partition.number)
        return PartitionResult(
            partition=partition.partition,
            error_code=ErrorCode.NONE,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                StateBatch(
                    first_offset=one.first,
                    last_offset=one.last,
                    delivery_state=one.state,
                    delivery_count=one.delivery_count,
                )
                for one in state.batches
            ],
        )

    results = await answer_rows(ctx, request, ReadStateResult, PartitionResult, read)
    return ReadShareGroupStateResponse(results=results)
