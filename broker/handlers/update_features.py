"""UpdateFeatures: finalize levels of features, or withdraw them (KIP-584).

Versions 0 to 2; v1 names the kind of change and can only validate, v2 has no result for each. From Kafka 4.0 on all
updates of a request are made or none. The controller decides and writes; whether every
broker supports a level is known from their registrations.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.administration import topic_creation
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

FIRST_VERSION_WITHOUT_RESULTS: Final = 2


@handles(UpdateFeaturesRequest, versions="0-2")
async def update_features(ctx: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Let the active controller decide, here or elsewhere."""
    together = ctx.services.profile.updates_features_together or ctx.version >= FIRST_VERSION_WITHOUT_RESULTS
    try:
        authorize(ctx, Operation.ALTER, ResourceType.CLUSTER)
        response: UpdateFeaturesResponse = await topic_creation.forward_to_controller(
            ctx.services,
            request,
            lambda controller: controller.update_features(request, together=together),
            timeout_ms=request.timeout_ms,
            version=ctx.version,
        )
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message or None, results=[])
    failed = next((row for row in response.results if row.error_code != ErrorCode.NONE), None)
    if failed is not None and together:
        return UpdateFeaturesResponse(error_code=failed.error_code, error_message=failed.error_message, results=[])
    if together:
        for row in response.results:
            row.error_message = ErrorCode.NONE.name  # as Kafka 4 says it
    return response
