"""DeleteAcls: delete entries of access control lists (KIP-140, KIP-290).

Versions 0 to 3. The row of each filter has the deleted entries. Without an authorizer each filter is SECURITY_DISABLED.
"""

from __future__ import annotations

from anabranch.broker.administration import acl_requests
from anabranch.broker.administration.acl_requests import NO_AUTHORIZER, Entry
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourcePattern, ResourceType
from anabranch.protocol.apis.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(DeleteAclsRequest, versions="0-3")
async def delete_acls(ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Delete the entries that match each filter."""
    filters = [acl_requests.filter_of(one) for one in request.filters]
    try:
        authorize(ctx, Operation.ALTER, ResourceType.CLUSTER)
        if ctx.services.authorizer is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    except KafkaError as error:
        refusal = DeleteAclsFilterResult(error_code=error.code, error_message=error.message, matching_acls=[])
        return DeleteAclsResponse(filter_results=[refusal] * len(request.filters))
    found, refused = await acl_requests.delete(ctx.services, filters)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=ErrorCode.NONE,
                error_message=None,
                matching_acls=[matching(entry, refused) for entry in entries],
            )
            for entries in found
        ]
    )


def matching(entry: Entry, refused: dict[ResourcePattern, KafkaError]) -> DeleteAclsMatchingAcl:
    """Return the row of a matching entry; it has an error if the entry was not deleted."""
    pattern, acl = entry
    error = refused.get(pattern)
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
