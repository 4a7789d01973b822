"""UpdateMetadata: receive the cluster's metadata from the controller.

Versions 0 to 8, with the resize fields as tags from version 6 on (D3). Fenced by the controller epoch and this broker's
own epoch, which LeaderAndIsr and StopReplica share.

A full update also says which replicas of this broker were moved away, or removed after a merge. StopReplica deletes
them, unless the controller died before it was sent, or this broker was not registered at that time. A leader of such a
partition would lead on, and lose what it acknowledges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.broker.dispatch.auth_helper import authorize_broker
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.metadata.metadata_cache import FULL_UPDATE
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage
    from anabranch.broker.replication.partition import Partition


@handles(UpdateMetadataRequest, versions="0-8")
async def update_metadata(ctx: RequestContext, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    """Process the request after all earlier controller requests."""
    authorize_broker(ctx)
    async with ctx.services.fence.turn:
        await ctx.services.fence.wait_registered()
        return await carry_out(ctx, request)


async def carry_out(ctx: RequestContext, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    """Apply the whole update to the metadata image."""
    services = ctx.services
    try:
        services.fence.admit(controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch)
        services.metadata.apply(request)
        if request.type == FULL_UPDATE and services.broker is not None:
            await delete_obsolete_replicas(ctx, request)
    except KafkaError as error:
        services.log.info("refusing UpdateMetadata of controller %d: %s", request.controller_id, error)
        return UpdateMetadataResponse(error_code=error.code)
    return UpdateMetadataResponse(error_code=ErrorCode.NONE)


async def delete_obsolete_replicas(ctx: RequestContext, request: UpdateMetadataRequest) -> None:
    """Delete the replicas that this broker should not have any more, a few at a time. Raises KafkaError."""
    services = ctx.services
    replicas, image = services.replicas, services.metadata.image
    obsolete = [one for one in replicas.partitions() if is_obsolete(one, image, services.settings.node_id)]
    if not obsolete:
        return
    try:
        async for partition in services.fence.in_steps(request, obsolete):
            services.log.info("deleting %r: it was moved to other brokers, or removed", partition)
            replicas.stop_replica(partition.topic, partition.index, partition.leader_epoch, delete=True)
    finally:
        replicas.fetchers.settle()


def is_obsolete(partition: Partition, image: ClusterImage, broker_id: int) -> bool:
    """Return whether a full update shows that this replica was moved away, or its merged partition removed (R13)."""
    topic = image.topics.get(partition.topic)
    if topic is None or topic.topic_id != partition.topic_id:
        return False  # the controller may be about to delete the topic, or unable to read it
    shown = topic.reported.get(partition.index)
    if shown is None:  # an unpublished child is not shown, either, but has a later generation
        merged = 0 <= topic.undeleted_partition_count <= partition.index
        return merged and partition.generation <= topic.generation
    return broker_id not in shown.replicas and shown.leader_epoch > partition.leader_epoch
