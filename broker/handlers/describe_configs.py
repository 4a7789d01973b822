"""DescribeConfigs: describe the effective settings of topics, brokers and loggers, with their sources.

Versions 0 to 4: v1 adds sources and synonyms (KIP-226), v3 types and documentation (KIP-569). A broker describes
itself, or (name "") the dynamic defaults of all brokers. Empty or null keys mean all; unknown keys are left out. An
unknown resource type makes the whole request fail, as in Kafka; any other error affects its own row. A resized topic
also has the placement of its keys, for clients that read no tags.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.administration.config_alterations import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    check_logger_broker,
)
from anabranch.broker.administration.config_entries import (
    ConfigEntry,
    broker_entries,
    cluster_default_entries,
    group_entries,
    lineage_entries,
    select_entries,
    subscription_entries,
    topic_entries,
)
from anabranch.broker.administration.loggers import levels
from anabranch.broker.administration.topic_creation import check_topic_name
from anabranch.broker.config.config_changes import read_config
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.metadata.group_configs import entity
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.broker.telemetry import client_metrics_configs
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

DYNAMIC_BROKER_LOGGER: Final = 6
UNAUTHORIZED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
KNOWN_TYPES: Final = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS)


@handles(DescribeConfigsRequest, versions="0-4")
async def describe_configs(ctx: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource separately."""
    known = (*KNOWN_TYPES, GROUP) if ctx.services.has_group_configs else KNOWN_TYPES
    strange = next((one for one in request.resources if one.resource_type not in known), None)
    if strange is not None:
        reason = f"Unexpected resource type {strange.resource_type} for resource {strange.resource_name}"
        error = KafkaError(ErrorCode.INVALID_REQUEST, reason)
        return DescribeConfigsResponse(results=[error_result(resource, error) for resource in request.resources])
    results, turns = [], YieldBudget()
    for resource in request.resources:
        await turns.spend()
        results.append(await describe(ctx, request, resource))
    results.sort(key=lambda one: one.error_code in UNAUTHORIZED)  # as Kafka: their rows are the last ones
    return DescribeConfigsResponse(results=results)


async def describe(
    ctx: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    """Return the settings of one resource, or its error."""
    try:
        rows = await rows_of(ctx, resource)
    except KafkaError as error:
        return error_result(resource, error)
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            row_of(row, synonyms=request.include_synonyms, documentation=request.include_documentation)
            for row in select_entries(rows, resource.configuration_keys)
        ],
    )


async def rows_of(ctx: RequestContext, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    """Return every setting of one resource. Raises KafkaError."""
    services, name = ctx.services, resource.resource_name
    if resource.resource_type == TOPIC:
        authorize(ctx, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)
    elif resource.resource_type == GROUP:
        authorize(ctx, Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, name)
    else:
        authorize(ctx, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    if resource.resource_type == BROKER:
        if not name:
            return cluster_default_entries(services.dynamic)
        check_described_broker(services.settings.node_id, name)
        return broker_entries(services.dynamic)
    if resource.resource_type == BROKER_LOGGER:
        check_logger_broker(services.settings.node_id, name)
        return logger_rows()
    if resource.resource_type == CLIENT_METRICS:
        if not name or not services.has_client_metrics:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return subscription_entries(await read_config(services.session, client_metrics_configs.entity(name)))
    if resource.resource_type == GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(services.settings, await read_config(services.session, entity(name)))
    check_topic_name(name)
    if name not in services.metadata.image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    rows = topic_entries(services.dynamic, await read_config(services.session, f"topics/{name}"))
    topic = services.metadata.topic(name)
    return rows if topic is None else [*rows, *lineage_entries(topic.base, topic.history)]


def check_described_broker(node_id: int, name: str) -> None:
    """Raise INVALID_REQUEST unless the name is this broker's id."""
    try:
        broker_id = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if broker_id != node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id} or empty string, but received {name}"
        )


def logger_rows() -> list[ConfigEntry]:
    """Return the loggers of this process and their levels."""
    return [
        ConfigEntry(
            name=name,
            value=level,
            source=DYNAMIC_BROKER_LOGGER,
            kind=0,
            read_only=False,
            sensitive=False,
            synonyms=(),
            documentation=None,
        )
        for name, level in levels().items()
    ]


def error_result(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    """Return the row of a refused resource."""
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message or None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def row_of(row: ConfigEntry, *, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    """Return the row of one setting, with the fields of all versions."""
    return DescribeConfigsResourceResult(
        name=row.name,
        value=row.value,
        read_only=row.read_only,
        config_source=row.source,
        is_sensitive=row.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in row.synonyms
            if synonyms
        ],
        config_type=row.kind,
        documentation=row.documentation if documentation else None,
    )
