"""DescribeClientQuotas: list the quotas of users, client ids and IP addresses (KIP-546, KIP-612).

Versions 0 and 1. Each component of the filter names an entity, the default of its type, or any entity of its type. A
strict filter matches only entities of exactly these types. Entities without a quota are left out.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.quotas import quota_configs as quotas
from anabranch.broker.quotas.client_quotas import FETCH, PRODUCE, REQUEST
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

EXACT, OF_DEFAULT, SPECIFIED = range(3)
ORDER: Final = (REQUEST, PRODUCE, FETCH, "controller_mutation_rate", "connection_creation_rate")
"""The order of the quotas in a row: that of Java's map."""


@handles(DescribeClientQuotasRequest, versions="0-1")
async def describe_client_quotas(
    ctx: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Describe the entities that match the filter."""
    try:
        authorize(ctx, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        strict = ctx.services.profile.answers_like_a_quorum
        components = quotas.checked_filter((one.entity_type, component_of(one, strict)) for one in request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    found = await quotas.entities(ctx.services.session)
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                values=[ValueData(key=name, value=limits[name]) for name in sorted(limits, key=ORDER.index)],
            )
            for entity, limits in quotas.matching_entities(found, components, strict=request.strict)
        ],
    )


def component_of(component: ComponentData, strict: bool) -> quotas.Component:
    """Return a filter component; only an exact one has a name.

    Raises UNKNOWN_SERVER_ERROR, as Kafka with ZooKeeper, or (strict) INVALID_REQUEST.
    """
    known = component.match_type in (OF_DEFAULT, SPECIFIED) or (
        component.match_type == EXACT and component.match is not None
    )
    if not known:
        code = ErrorCode.INVALID_REQUEST if strict else ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError(code, f"Unexpected match type: {component.match_type}")
    if strict and component.match_type != EXACT and component.match is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Request specified a match where the type of match has none")
    return quotas.Component(
        exact=component.match_type != SPECIFIED, name=component.match if component.match_type == EXACT else None
    )
