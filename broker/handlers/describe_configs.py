"""DescribeConfigs: effective settings of topics and brokers, and where each comes from (KIP-133, KIP-226, KIP-569).

Versions 0 to 4: v1 adds synonyms and sources, v3 types and documentation. Resource types 2 (topic) and 4 (broker); a
broker describes only itself. Empty or null keys mean all; unknown keys are left out.
"""

from __future__ import annotations

from broker.admin import check_topic_name
from broker.api import RequestContext, handles
from broker.topic_properties import DEFAULT, DYNAMIC_TOPIC, Property, described, described_broker
from protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from protocol.errors import ErrorCode, KafkaError

TOPIC = 2
BROKER = 4


@handles(DescribeConfigsRequest, versions="0-4")
async def describe_configs(ctx: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Answer each resource on its own."""
    return DescribeConfigsResponse(results=[await describe(ctx, request, asked) for asked in request.resources])


async def describe(
    ctx: RequestContext, request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    """The settings of one resource, or its error."""
    try:
        properties = await properties_of(ctx, asked)
    except KafkaError as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=error.message,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=[],
        )
    keys = asked.configuration_keys
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[
            row_of(entry, read_only=asked.resource_type == BROKER, synonyms=request.include_synonyms)
            for entry in properties
            if not keys or entry.name in keys
        ],
    )


async def properties_of(ctx: RequestContext, asked: DescribeConfigsResource) -> list[Property]:
    """Read the settings of one resource. Raises KafkaError."""
    services = ctx.services
    if asked.resource_type == BROKER:
        if asked.resource_name not in ("", str(services.settings.node_id)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {services.settings.node_id} or empty string, "
                f"but received {asked.resource_name}",
            )
        return described_broker(services.settings) if asked.resource_name else []
    if asked.resource_type != TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {asked.resource_type}")
    check_topic_name(asked.resource_name)
    if asked.resource_name not in services.metadata.image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    await services.topic_configs.load(asked.resource_name)
    return described(services.settings, services.topic_configs.properties(asked.resource_name))


def row_of(entry: Property, *, read_only: bool, synonyms: bool) -> DescribeConfigsResourceResult:
    """One setting as every version may show it."""
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=read_only,
        is_default=entry.source == DEFAULT if read_only else entry.source != DYNAMIC_TOPIC,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
            if synonyms
        ],
        config_type=entry.type,
        documentation=None,
    )
