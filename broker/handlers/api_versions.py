"""ApiVersions: list the APIs and versions that this node serves to the client (KIP-35, KIP-511, D19).

Versions 0 to 4. The fallback for an unknown version (KIP-511) is part of the connection, because its body cannot be
parsed. From v3 the response has the cluster's features (KIP-584).
"""

from __future__ import annotations

import re
from typing import Final

from anabranch.broker.dispatch.dispatcher import peer_versions
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.controller.features import SUPPORTED as OURS
from anabranch.protocol.apis.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from anabranch.protocol.errors import ErrorCode

FIRST_VERSION_WITH_LEVEL_0: Final = 4
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest, versions="0-4")
async def api_versions(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """List the served ranges by API key."""
    named = (request.client_software_name, request.client_software_version)
    if ctx.version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in named):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    settings = ctx.services.settings
    served = peer_versions(settings.kafka_version, settings.is_broker, ctx.services.takes_telemetry)
    audience = served.ranges_for(request.client_software_name)
    finalized = ctx.services.features.present
    hidden = set() if audience is not served.others or ctx.services.profile.shows_own_apis else set(OURS)
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, (first, last) in sorted(audience.advertised.items())
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=least, max_version=most)
            for name, (least, most) in ctx.services.features.supported.items()
            if name not in hidden and (least > 0 or ctx.version >= FIRST_VERSION_WITH_LEVEL_0)
        ],
        finalized_features_epoch=finalized.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.levels.items()
            if name not in hidden
        ],
    )
