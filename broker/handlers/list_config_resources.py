"""ListConfigResources: list the resources that have, or can have, a configuration (KIP-714, KIP-1142).

Versions 0 and 1; v0 lists only client metrics subscriptions. Groups and subscriptions are listed only with settings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from anabranch.broker.administration.config_alterations import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.controller.candidacy import retry_connection_loss
from anabranch.controller.zk import paths
from anabranch.controller.zk.session import NoNode
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.dispatch.services import Services

KINDS: Final = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)


@handles(ListConfigResourcesRequest, versions="0-1")
async def list_config_resources(
    ctx: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the resources of each type."""
    authorize(ctx, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    kinds = [CLIENT_METRICS] if ctx.version == 0 else sorted(set(request.resource_types or KINDS), reverse=True)
    if not set(kinds) <= set(KINDS):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "a resource type that has no configuration")
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in kinds
            for name in await names_of(ctx.services, kind)
        ],
    )


async def names_of(services: Services, kind: int) -> Iterable[str]:
    """Return the resources of a type."""
    image = services.metadata.image
    if kind == TOPIC:
        return sorted(image.topics)
    if kind == CLIENT_METRICS:
        return services.client_metrics.names
    if kind in (BROKER, BROKER_LOGGER):
        return [str(broker) for broker in sorted(image.brokers)]
    try:
        return sorted(
            map(unquote, await retry_connection_loss(lambda: services.session.children(paths.config("groups"))))
        )
    except NoNode:
        return []
