"""DeleteShareGroupState: a group shares partitions no longer (KIP-932).

Version 0. Source: Kafka's `ShareCoordinatorService`.
"""

from __future__ import annotations

from anabranch.broker.coordinators.share_partitions.share_state import ShareKey
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.share_state_rows import answered
from anabranch.protocol.apis.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionData,
)
from anabranch.protocol.apis.write_share_group_state import PartitionResult
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(DeleteShareGroupStateRequest, versions="0")
async def delete_share_group_state(
    ctx: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """Forget the group in each partition."""
    coordinator = ctx.services.shares.coordinator

    async def delete(key: ShareKey, asked: PartitionData) -> PartitionResult:
        await coordinator.delete(key)
        return PartitionResult(partition=asked.partition, error_code=ErrorCode.NONE)

    def refuse(partition: int, error: KafkaError) -> PartitionResult:
        return PartitionResult(partition=partition, error_code=error.code, error_message=error.message or None)

    rows = await answered(ctx, request, delete, refuse)
    return DeleteShareGroupStateResponse(
        results=[DeleteStateResult(topic_id=topic_id, partitions=partitions) for topic_id, partitions in rows]
    )
