"""ApiVersions: which APIs and versions this node serves (KIP-35, KIP-511).

Versions 0 to 4. The fallback for a client that asks in a version we do not know (KIP-511) is made by the connection
itself, before any handler: such a body cannot be parsed. From v3 on it tells the cluster's features (KIP-584).
"""

from __future__ import annotations

import re
from typing import Final

from anabranch.broker.api import RequestContext, handles, version_range
from anabranch.broker.dispatch import HANDLERS
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
    """List the served ranges in the order of their keys."""
    named = (request.client_software_name, request.client_software_version)
    if ctx.version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in named):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    keys = []
    for row in HANDLERS:
        if ctx.services.settings.is_broker or row.by_controllers:
            first, last = version_range(row.versions)
            keys.append(ApiVersion(api_key=row.api.key, min_version=first, max_version=last))
    finalized = ctx.services.features.present
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=sorted(keys, key=lambda key: key.api_key),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=least, max_version=most)
            for name, (least, most) in ctx.services.features.supported.items()
            if least > 0 or ctx.version >= FIRST_VERSION_WITH_LEVEL_0
        ],
        finalized_features_epoch=finalized.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.levels.items()
        ],
    )
