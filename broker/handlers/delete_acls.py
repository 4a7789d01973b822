"""DeleteAcls: take permissions back (KIP-140, KIP-290).

Versions 0 to 3. There is no authorizer that has any: SECURITY_DISABLED for each filter.
"""

from __future__ import annotations

from anabranch.broker.api import RequestContext, handles
from anabranch.broker.handlers.create_acls import NO_AUTHORIZER
from anabranch.protocol.apis.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from anabranch.protocol.errors import ErrorCode


@handles(DeleteAclsRequest, versions="0-3")
async def delete_acls(ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Refuse each."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[]
            )
            for _ in request.filters
        ]
    )
