"""DescribeAcls: list permissions (KIP-140, KIP-290).

Versions 0 to 3. There is no authorizer, so every client may do everything, and nothing is described: SECURITY_DISABLED.
"""

from __future__ import annotations

from anabranch.broker.api import RequestContext, handles
from anabranch.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from anabranch.protocol.errors import ErrorCode


@handles(DescribeAclsRequest, versions="0-3")
async def describe_acls(ctx: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Refuse."""
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured on the broker",
        resources=[],
    )
