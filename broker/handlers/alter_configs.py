"""AlterConfigs: replace the whole configuration of a resource (KIP-133); what is not named returns to its default.

Versions 0 to 2. Topics, brokers, and all brokers (name ""). To change single properties without knowing the
others, clients use IncrementalAlterConfigs.
"""

from __future__ import annotations

from anabranch.broker.administration import config_alterations as requests
from anabranch.broker.administration.config_alterations import SET, Operation
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)


@handles(AlterConfigsRequest, versions="0-2")
async def alter_configs(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Alter each resource on its own."""

    async def alter(asked: AlterConfigsResource) -> None:
        requests.authorize_alter(ctx, asked.resource_type, asked.resource_name)
        operations = [Operation(one.name, SET, one.value) for one in asked.configs]
        requests.check_operations(operations)
        await requests.alter(
            ctx.services,
            asked.resource_type,
            asked.resource_name,
            lambda _: {one.name: one.value or "" for one in operations},
            validate_only=request.validate_only,
        )

    return AlterConfigsResponse(responses=await requests.alter_each(request.resources, alter))
