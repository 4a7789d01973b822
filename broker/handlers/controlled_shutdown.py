"""ControlledShutdown: move the leaderships of a broker that is about to stop to other brokers.

Versions 0 to 3; v0 is the only request whose header has no client id. Any node but the active controller answers
NOT_CONTROLLER.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize_broker
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from anabranch.protocol.errors import ErrorCode


@handles(ControlledShutdownRequest, versions="0-3")
async def controlled_shutdown(ctx: RequestContext, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
    """Pass the request to the controller of this node."""
    authorize_broker(ctx)
    controller = ctx.services.controller
    if controller is None:
        return ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER, remaining_partitions=[])
    return await controller.controlled_shutdown(request)
