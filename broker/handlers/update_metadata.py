"""UpdateMetadata: receive the cluster's metadata from the controller.

Versions 0 to 8, with the resize fields as tags from version 6 on (D3). Fenced by the controller epoch and this broker's
own epoch, which LeaderAndIsr and StopReplica share.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize_broker
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(UpdateMetadataRequest, versions="0-8")
async def update_metadata(ctx: RequestContext, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    """Process the request after all earlier controller requests."""
    authorize_broker(ctx)
    async with ctx.services.fence.turn:
        await ctx.services.fence.wait_registered()
        return carry_out(ctx, request)


def carry_out(ctx: RequestContext, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    """Apply the whole update to the metadata image."""
    services = ctx.services
    try:
        services.fence.admit(controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch)
    except KafkaError as error:
        services.log.info("refusing UpdateMetadata of controller %d: %s", request.controller_id, error)
        return UpdateMetadataResponse(error_code=error.code)
    services.metadata.apply(request)
    return UpdateMetadataResponse(error_code=ErrorCode.NONE)
