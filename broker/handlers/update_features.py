"""UpdateFeatures: finalize the levels of features, or remove them (KIP-584).

Versions 0 to 2; v1 has the type of change and validation without changes, v2 has no results per feature. From Kafka 4.0
on all updates of a request are applied or none. The controller checks the levels against the brokers' registrations.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.administration import topic_creation
from anabranch.broker.dispatch.auth_helper import authorize_client
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

FIRST_VERSION_WITHOUT_RESULTS: Final = 2


@handles(UpdateFeaturesRequest, versions="0-2")
async def update_features(ctx: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Forward the request to the active controller."""
    together = ctx.services.profile.updates_features_together or ctx.version >= FIRST_VERSION_WITHOUT_RESULTS
    try:
        authorize_client(ctx, Operation.ALTER, ResourceType.CLUSTER)
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
            row.error_message = ErrorCode.NONE.name  # as in Kafka 4
    return response
