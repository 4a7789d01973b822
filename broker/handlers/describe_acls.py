"""DescribeAcls: list entries of access control lists (KIP-140, KIP-290).

Versions 0 to 3. The response has the entries that this broker applies; an empty one is no error. Without an authorizer
it is SECURITY_DISABLED.
"""

from __future__ import annotations

from anabranch.broker.administration.acl_requests import filter_of
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from anabranch.protocol.errors import ErrorCode


@handles(DescribeAclsRequest, versions="0-3")
async def describe_acls(ctx: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """List the entries that match the filter, by pattern."""
    acl_filter = filter_of(request)
    authorize(ctx, Operation.DESCRIBE, ResourceType.CLUSTER)
    authorizer = ctx.services.authorizer
    if authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message="No Authorizer is configured on the broker",
            resources=[],
        )
    found = []
    for pattern, acls in authorizer.acls.items():
        picked = [acl for acl in acls if acl_filter.picks(acl)] if acl_filter.covers(pattern) else []
        rows = [
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
            for acl in sorted(picked, key=lambda acl: (acl.principal, acl.operation, acl.permission, acl.host))
        ]
        if rows:
            found.append(
                DescribeAclsResource(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                    acls=rows,
                )
            )
    return DescribeAclsResponse(error_code=ErrorCode.NONE, error_message=None, resources=found)
