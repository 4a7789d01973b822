"""WriteShareGroupState: store the outcomes of records in share partitions (KIP-932).

Versions 0 to 1. Source: Kafka's `ShareCoordinatorService`.
"""

from __future__ import annotations

from anabranch.broker.coordinators.share_partitions.in_flight import RecordState, StateBatch
from anabranch.broker.coordinators.share_partitions.share_state import ShareKey
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.share_state_rows import answer_rows
from anabranch.protocol.apis.write_share_group_state import (
    PartitionData,
    PartitionResult,
    StateResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(WriteShareGroupStateRequest, versions="0-1")
async def write_share_group_state(
    ctx: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    """Store the state changes from each partition's leader."""
    coordinator = ctx.services.shares.coordinator

    async def write(key: ShareKey, partition: PartitionData) -> PartitionResult:
        await coordinator.write(
            key,
            state_epoch=partition.state_epoch,
            leader_epoch=partition.leader_epoch,
            number=partition.number,
            start_offset=partition.start_offset,
            batches=batches_of(partition),
            complete_count=partition.delivery_complete_count,
        )
        return PartitionResult(partition=partition.partition, error_code=ErrorCode.NONE)

    results = await answer_rows(ctx, request, StateResult, PartitionResult, write)
    return WriteShareGroupStateResponse(results=results)


def batches_of(partition: PartitionData) -> list[StateBatch]:
    """Return the state batches of a partition. Raises INVALID_REQUEST."""
    try:
        batches = [
            StateBatch(one.first_offset, one.last_offset, RecordState(one.delivery_state), one.delivery_count)
            for one in partition.state_batches
        ]
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if any(one.last < one.first for one in batches):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a batch ends before it begins")
    return batches
