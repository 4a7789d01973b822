"""InitializeShareGroupState: a life of a group in shared partitions begins (KIP-932).

Version 0. Source: Kafka's `ShareCoordinatorService`.
"""

from __future__ import annotations

from anabranch.broker.coordinators.share_partitions.share_state import ShareKey
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.share_state_rows import answered
from anabranch.protocol.apis.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
)
from anabranch.protocol.apis.write_share_group_state import PartitionResult
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(InitializeShareGroupStateRequest, versions="0")
async def initialize_share_group_state(
    ctx: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Keep the beginning of each partition."""
    coordinator = ctx.services.shares.coordinator

    async def initialize(key: ShareKey, asked: PartitionData) -> PartitionResult:
        await coordinator.initialize(key, asked.state_epoch, asked.start_offset)
        return PartitionResult(partition=asked.partition, error_code=ErrorCode.NONE)

    def refuse(partition: int, error: KafkaError) -> PartitionResult:
        return PartitionResult(partition=partition, error_code=error.code, error_message=error.message or None)

    rows = await answered(ctx, request, initialize, refuse)
    return InitializeShareGroupStateResponse(
        results=[InitializeStateResult(topic_id=topic_id, partitions=partitions) for topic_id, partitions in rows]
    )
