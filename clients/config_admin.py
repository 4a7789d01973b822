"""Describes and alters settings of topics and brokers for `Admin`, with each value's source.

Requests about a broker's own settings go to it, all others to any broker. Each function raises a refusal as a
`KafkaError` with Kafka's code and the broker's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from anabranch.clients.network import Network
from anabranch.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from anabranch.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from anabranch.protocol.apis.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from anabranch.protocol.errors import ErrorCode, KafkaError, raise_for_error

TOPIC: Final = 2
BROKER: Final = 4
CLIENT_METRICS: Final = 16
SET, DELETE, APPEND, SUBTRACT = range(4)
ALL_BROKERS: Final = -1
"""In place of a broker's id: the default settings of all brokers."""


@dataclass(frozen=True, kw_only=True)
class ConfigEntry:
    """One setting. `source` is Kafka's number: 1 topic, 2 this broker, 3 all brokers, 4 start of the broker, 5 default,
    7 subscription to client metrics.

    `synonyms` are the other definitions of the value, (name, value, source) each, in order of precedence.
    """

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    synonyms: tuple[tuple[str, str | None, int], ...] = ()
    documentation: str = ""


def resource_of(topic: str | None, broker: int | None, client_metrics: str | None = None) -> tuple[int, str]:
    """Return Kafka's (resource type, resource name). Raises ValueError unless exactly one resource is given."""
    if sum(one is not None for one in (topic, broker, client_metrics)) != 1:
        raise ValueError("name a topic, a broker, or a subscription to metrics of clients")
    if topic is not None:
        return TOPIC, topic
    if client_metrics is not None:
        return CLIENT_METRICS, client_metrics
    return BROKER, "" if broker == ALL_BROKERS else str(broker)


async def describe_configs(
    network: Network,
    topic: str | None,
    broker: int | None,
    names: Sequence[str] | None = None,
    client_metrics: str | None = None,
) -> dict[str, ConfigEntry]:
    """Return setting name -> entry of the resource: the settings in `names`, or all. Raises KafkaError, ValueError."""
    kind, name = resource_of(topic, broker, client_metrics)
    keys = None if names is None else list(names)
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    response: DescribeConfigsResponse = await _ask(network, request, broker)
    (result,) = response.results
    _check(result, name)
    return {
        one.name: ConfigEntry(
            name=one.name,
            value=one.value,
            source=one.config_source,
            read_only=one.read_only,
            sensitive=one.is_sensitive,
            synonyms=tuple((synonym.name, synonym.value, synonym.source) for synonym in one.synonyms),
            documentation=one.documentation or "",
        )
        for one in result.configs
    }


async def alter_configs(
    network: Network,
    topic: str | None,
    broker: int | None,
    *,
    client_metrics: str | None = None,
    changes: Mapping[str, str],
    unset: Iterable[str],
    append: Mapping[str, str],
    subtract: Mapping[str, str],
    validate_only: bool,
) -> None:
    """Change single settings of the resource; the others stay. Raises KafkaError, ValueError."""
    rows = [AlterableConfig(name=name, config_operation=DELETE, value=None) for name in unset]
    for operation, values in ((SET, changes), (APPEND, append), (SUBTRACT, subtract)):
        rows += [AlterableConfig(name=name, config_operation=operation, value=text) for name, text in values.items()]
    kind, name = resource_of(topic, broker, client_metrics)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    response: IncrementalAlterConfigsResponse = await _ask(network, request, broker)
    (result,) = response.responses
    _check(result, name)


async def list_client_metrics(network: Network) -> list[str]:
    """List the subscriptions to client metrics. Raises KafkaError."""
    request = ListConfigResourcesRequest(resource_types=[CLIENT_METRICS])
    response: ListConfigResourcesResponse = await _ask(network, request, None)
    raise_for_error(response.error_code, "subscriptions to metrics of clients")
    return [one.resource_name for one in response.config_resources]


async def _ask(network: Network, request: Any, broker: int | None) -> Any:
    async def once() -> Any:
        if broker is None or broker == ALL_BROKERS:
            return await network.call_any(request)
        return await network.call(broker, request)

    return await network.retry(once)


def _check(row: Any, name: str) -> None:
    code = ErrorCode(row.error_code)
    if code != ErrorCode.NONE:
        raise KafkaError(code, row.error_message or name)
