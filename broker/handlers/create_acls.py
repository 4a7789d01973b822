"""CreateAcls: add entries to access control lists (KIP-140, KIP-290).

Versions 0 to 3. Any broker accepts the request, and applies the entries before it answers; other brokers apply them
later. Without an authorizer each entry is SECURITY_DISABLED.
"""

from __future__ import annotations

from anabranch.broker.administration import acl_requests
from anabranch.broker.administration.acl_requests import NO_AUTHORIZER, Entry
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(CreateAclsRequest, versions="0-3")
async def create_acls(ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Create each entry; the entries of one pattern are created together or not at all."""
    for creation in request.creations:
        acl_requests.check_creation(creation)
    outcome: list[Entry | KafkaError] = []
    try:
        authorize(ctx, Operation.ALTER, ResourceType.CLUSTER)
        if ctx.services.authorizer is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        if any(map(acl_requests.has_words_of_filters, request.creations)):
            message = "An ACL must name its resource type, pattern type, operation and permission"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
    except KafkaError as error:
        return CreateAclsResponse(results=[result_of(error)] * len(request.creations))
    for creation in request.creations:
        try:
            outcome.append(acl_requests.entry_of(creation))
        except KafkaError as error:
            outcome.append(error)
    entries = [one for one in outcome if not isinstance(one, KafkaError)]
    refused = await acl_requests.create(ctx.services, entries)
    return CreateAclsResponse(
        results=[result_of(one if isinstance(one, KafkaError) else refused.get(one[0])) for one in outcome]
    )


def result_of(error: KafkaError | None) -> AclCreationResult:
    """Return the row of one entry."""
    if error is None:
        return AclCreationResult(error_code=ErrorCode.NONE, error_message=None)
    return AclCreationResult(error_code=error.code, error_message=error.message)
