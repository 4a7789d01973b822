"""StopReplica: stop replicas of this broker, and delete their logs if requested.

Versions 0 to 4. Fenced like LeaderAndIsr. A row with an older leader epoch than the replica's is FENCED_LEADER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anabranch.broker.dispatch.auth_helper import authorize_broker
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

EPOCH_NOT_KNOWN: Final = -1


@handles(StopReplicaRequest, versions="0-4")
async def stop_replica(ctx: RequestContext, request: StopReplicaRequest) -> StopReplicaResponse:
    """Process the request after all earlier controller requests."""
    authorize_broker(ctx)
    async with ctx.services.fence.turn:
        await ctx.services.fence.wait_registered()
        return await carry_out(ctx, request)


async def carry_out(ctx: RequestContext, request: StopReplicaRequest) -> StopReplicaResponse:
    """Stop each replica separately, a few at a time."""
    services = ctx.services
    rows = []
    try:
        services.fence.admit(controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch)
        async for topic, index, leader_epoch, delete in services.fence.in_steps(request, rows_of(request)):
            code = services.replicas.stop_replica(topic, index, leader_epoch, delete=delete)
            rows.append(StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=code))
    except KafkaError as error:
        services.log.info("refusing StopReplica of controller %d: %s", request.controller_id, error)
        return StopReplicaResponse(error_code=error.code, partition_errors=[])
    finally:
        services.replicas.fetchers.settle()
    return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=rows)


def rows_of(request: StopReplicaRequest) -> Iterator[tuple[str, int, int, bool]]:
    """Yield (topic, index, leader epoch, delete) of every partition, in any version."""
    for partition in request.ungrouped_partitions:
        yield partition.topic_name, partition.partition_index, EPOCH_NOT_KNOWN, request.delete_partitions
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield topic.name, index, EPOCH_NOT_KNOWN, request.delete_partitions
    for state in request.topic_states:
        for row in state.partition_states:
            yield state.topic_name, row.partition_index, row.leader_epoch, row.delete_partition
