"""DeleteShareGroupState: delete the state of a group in share partitions (KIP-932).

Version 0. Source: Kafka's `ShareCoordinatorService`.
"""

from __future__ import annotations

from anabranch.broker.coordinators.share_partitions.share_state import ShareKey
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.share_state_rows import answer_rows
from anabranch.protocol.apis.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    PartitionData,
)
from anabranch.protocol.apis.write_share_group_state import PartitionResult, StateResult
from anabranch.protocol.errors import ErrorCode


@handles(DeleteShareGroupStateRequest, versions="0")
async def delete_share_group_state(
    ctx: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """Delete the group's state in each partition."""
    coordinator = ctx.services.shares.coordinator

    async def delete(key: ShareKey, partition: PartitionData) -> PartitionResult:
        await coordinator.delete(key)
        return PartitionResult(partition=partition.partition, error_code=ErrorCode.NONE)

    results = await answer_rows(ctx, request, StateResult, PartitionResult, delete)
    return DeleteShareGroupStateResponse(results=results)
