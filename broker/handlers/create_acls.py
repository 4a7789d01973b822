"""CreateAcls: grant permissions (KIP-140, KIP-290).

Versions 0 to 3. There is no authorizer that would obey: SECURITY_DISABLED for each.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.api import RequestContext, handles
from anabranch.protocol.apis.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from anabranch.protocol.errors import ErrorCode

NO_AUTHORIZER: Final = "No Authorizer is configured."


@handles(CreateAclsRequest, versions="0-3")
async def create_acls(ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Refuse each."""
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in request.creations
        ]
    )
