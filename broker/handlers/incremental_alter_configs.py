"""IncrementalAlterConfigs: set, delete, append to and subtract from single properties (KIP-339, KIP-412).

Versions 0 and 1. Resources are topics, brokers, all brokers (name ""), and loggers of the receiving broker. Any broker
applies the changes by a write below /config, which every node watches.
"""

from __future__ import annotations

from anabranch.broker.administration import config_alterations as requests
from anabranch.broker.administration import loggers
from anabranch.broker.administration.config_alterations import Operation
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@handles(IncrementalAlterConfigsRequest, versions="0-1")
async def incremental_alter_configs(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Alter each resource separately."""

    async def alter(resource: AlterConfigsResource) -> None:
        requests.authorize_alter(ctx, resource.resource_type, resource.resource_name)
        operations = [Operation(one.name, one.config_operation, one.value) for one in resource.configs]
        requests.check_operations(operations)
        if resource.resource_type == requests.BROKER_LOGGER:
            alter_loggers(ctx, resource.resource_name, operations, validate_only=request.validate_only)
            return
        keys = requests.keys_of(resource.resource_type, ctx.services.settings.kafka_version)
        await requests.alter(
            ctx.services,
            resource.resource_type,
            resource.resource_name,
            lambda before: requests.apply_operations(before, operations, keys),
            validate_only=request.validate_only,
        )

    return IncrementalAlterConfigsResponse(responses=await requests.alter_each(request.resources, alter))


def alter_loggers(ctx: RequestContext, name: str, operations: list[Operation], *, validate_only: bool) -> None:
    """Change the log levels of this process. Raises KafkaError."""
    requests.check_logger_broker(ctx.services.settings.node_id, name)
    loggers.check(operations)
    if not validate_only:
        loggers.apply(operations)
