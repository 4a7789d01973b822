"""InitializeShareGroupState: start a new incarnation of a group in share partitions (KIP-932).

Version 0. Source: Kafka's `ShareCoordinatorService`.
"""

from __future__ import annotations

from anabranch.broker.coordinators.share_partitions.share_state import ShareKey
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.share_state_rows import answer_rows
from anabranch.protocol.apis.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    PartitionData,
)
from anabranch.protocol.apis.write_share_group_state import PartitionResult, StateResult
from anabranch.protocol.errors import ErrorCode


@handles(InitializeShareGroupStateRequest, versions="0")
async def initialize_share_group_state(
    ctx: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Store the state epoch and start offset of each partition."""
    coordinator = ctx.services.shares.coordinator

    async def initialize(key: ShareKey, partition: PartitionData) -> PartitionResult:
        await coordinator.initialize(key, partition.state_epoch, partition.start_offset)
        return PartitionResult(partition=partition.partition, error_code=ErrorCode.NONE)

    results = await answer_rows(ctx, request, StateResult, PartitionResult, initialize)
    return InitializeShareGroupStateResponse(results=results)
