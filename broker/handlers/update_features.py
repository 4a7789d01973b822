"""UpdateFeatures: finalize levels of features, or withdraw them (KIP-584).

Versions 0 and 1; v1 names the kind of change and can only validate. The controller decides and writes; whether every
broker supports a level is known from their registrations.
"""

from __future__ import annotations

from anabranch.broker import admin
from anabranch.broker.api import RequestContext, handles
from anabranch.broker.rights import demand
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from anabranch.protocol.errors import KafkaError


@handles(UpdateFeaturesRequest, versions="0-1")
async def update_features(ctx: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Let the active controller decide, here or elsewhere."""
    try:
        demand(ctx, Operation.ALTER, ResourceType.CLUSTER)
        return await admin.at_controller(
            ctx.services,
            request,
            lambda controller: controller.update_features(request),
            timeout_ms=request.timeout_ms,
        )
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message or None, results=[])
