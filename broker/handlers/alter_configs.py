"""AlterConfigs: replace the whole configuration of a resource (KIP-133); unnamed properties return to their defaults.

Versions 0 to 2. Resources are topics, brokers, and all brokers (""). IncrementalAlterConfigs changes single properties.
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
    """Alter each resource separately."""

    async def alter(resource: AlterConfigsResource) -> None:
        requests.authorize_alter(ctx, resource.resource_type, resource.resource_name)
        operations = [Operation(one.name, SET, one.value) for one in resource.configs]
        requests.check_operations(operations)
        await requests.alter(
            ctx.services,
            resource.resource_type,
            resource.resource_name,
            lambda _: {one.name: one.value or "" for one in operations},
            validate_only=request.validate_only,
        )

    return AlterConfigsResponse(responses=await requests.alter_each(request.resources, alter))
