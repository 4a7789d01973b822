"""Validates AlterConfigs and IncrementalAlterConfigs in Kafka's order, and applies them.

Checks, in order: the request itself (duplicate resources or names, null values, unknown resource types), the existence
of the resource, and its new properties together with the existing ones. As in Kafka, a read-only broker property is
INVALID_REQUEST and an invalid topic property INVALID_CONFIG. Sources: `ConfigAdminManager`, `ZkAdminManager`,
`DynamicBrokerConfig.validate`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.administration.topic_creation import check_topic_name
from anabranch.broker.config.config_changes import DEFAULT_ENTITY, change_config, read_config
from anabranch.broker.config.config_def import ConfigError, ConfigKey, Kind, Scope, UpdateMode, config_def
from anabranch.broker.config.dynamic_config import is_updatable, merge, valid_properties
from anabranch.broker.config.effective_config import check_group_config, check_topic_properties, topic_config
from anabranch.broker.config.listeners import LIMITS, base_name, is_fixed, is_local
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.metadata import group_configs
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.broker.telemetry import client_metrics_configs, subscriptions
from anabranch.protocol import acls
from anabranch.protocol.apis.alter_configs import AlterConfigsResourceResponse
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.config.dynamic_config import DynamicConfig
    from anabranch.broker.dispatch.request_context import RequestContext
    from anabranch.broker.dispatch.services import Services

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

SET, DELETE, APPEND, SUBTRACT = range(4)
THREADS: Final = frozenset(
    {
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
"""Properties whose new value must be between half and double the current one."""
ORDERED: Final = "enable.ordered.delivery"


@value
class Operation:
    """One operation on a property (AlterConfigOp)."""

    name: str
    kind: int
    value: str | None


async def alter_each(
    resources: Sequence[Any], alter: Callable[[Any], Awaitable[None]]
) -> list[AlterConfigsResourceResponse]:
    """Alter each resource, and return the outcomes. Duplicate resources fail with INVALID_REQUEST."""
    times = Counter((one.resource_type, one.resource_name) for one in resources)
    outcomes, turns = [], YieldBudget()
    for one in resources:
        await turns.spend()
        code, message = ErrorCode.NONE, ""
        try:
            if times[one.resource_type, one.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            await alter(one)
        except KafkaError as error:
            code, message = error.code, error.message
        outcomes.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message or None,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
        )
    return outcomes


def authorize_alter(ctx: RequestContext, resource_type: int, name: str) -> None:
    """Raise KafkaError unless the client is authorized to alter the configuration of a resource.

    Raises INVALID_REQUEST first for a type that the shown version of Kafka does not alter.
    """
    if resource_type not in altered_types(ctx.services):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    if resource_type == TOPIC:
        authorize(ctx, acls.Operation.ALTER_CONFIGS, acls.ResourceType.TOPIC, name)
    elif resource_type == GROUP:
        authorize(ctx, acls.Operation.ALTER_CONFIGS, acls.ResourceType.GROUP, name)
    else:
        authorize(ctx, acls.Operation.ALTER_CONFIGS, acls.ResourceType.CLUSTER)


def altered_types(services: Services) -> set[int]:
    """Return the types of resources whose configuration can be altered."""
    types = {TOPIC, BROKER, BROKER_LOGGER}
    if services.has_group_configs:
        types.add(GROUP)
    if services.has_client_metrics:
        types.add(CLIENT_METRICS)
    return types


async def alter(
    services: Services,
    resource_type: int,
    name: str,
    edit: Callable[[Mapping[str, str]], dict[str, str]],
    *,
    validate_only: bool,
) -> None:
    """Alter a topic, group, metrics subscription, broker, or (name "") all brokers. Raises KafkaError."""
    if resource_type == TOPIC:
        entity, check = f"topics/{name}", await _topic_check(services, name)
    elif resource_type == BROKER:
        check_broker_name(services.settings.node_id, name)
        entity, check = f"brokers/{name or DEFAULT_ENTITY}", _broker_check(services, per_broker=bool(name))
    elif resource_type == GROUP:
        entity, check = group_configs.entity(name), _group_check(services, name)
    elif resource_type == CLIENT_METRICS:
        entity, check = client_metrics_configs.entity(name), _subscription_check(name)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")

    def check_values(before: Mapping[str, str]) -> dict[str, str]:
        if resource_type == BROKER:
            before = valid_properties(before, services.settings.kafka_version, per_broker=bool(name))
        after = edit(before)
        check(before, after)
        return after

    if validate_only:
        check_values(await read_config(services.session, entity))
    else:
        await change_config(services.session, entity, check_values)


def check_operations(operations: Iterable[Operation]) -> None:
    """Raise INVALID_REQUEST for a duplicate name, a missing value or an unknown operation."""
    operations = list(operations)
    if max(Counter(one.name for one in operations).values(), default=0) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    missing = [one.name for one in operations if one.kind != DELETE and one.value is None]
    if missing:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")
    for one in operations:
        if one.kind not in (SET, DELETE, APPEND, SUBTRACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {one.kind}")


def apply_operations(
    before: Mapping[str, str], operations: Iterable[Operation], keys: Mapping[str, ConfigKey]
) -> dict[str, str]:
    """Return the configuration after these operations. Raises INVALID_CONFIG for APPEND or SUBTRACT to a non-list."""
    after = dict(before)
    for one in operations:
        if one.kind == DELETE:
            after.pop(one.name, None)
            continue
        text = one.value or ""
        if one.kind in (APPEND, SUBTRACT):
            key = keys.get(one.name)
            what = "append" if one.kind == APPEND else "subtract"
            if key is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {one.name}")
            if key.kind is not Kind.LIST:
                message = f"Config value {what} is not allowed for config key: {one.name}"
                raise KafkaError(ErrorCode.INVALID_CONFIG, message)
            old = [part for part in after.get(one.name, key.default or "").split(",") if part]
            given = text.split(",")
            if one.kind == APPEND:
                text = ",".join([*old, *(part for part in given if part not in old)])
            else:
                text = ",".join(part for part in old if part not in given)
        after[one.name] = text
    return after


def keys_of(resource_type: int, kafka_version: str) -> Mapping[str, ConfigKey]:
    """The declared properties of a resource type."""
    if resource_type == CLIENT_METRICS:
        return {}  # Kafka allows no APPEND or SUBTRACT for them
    scope = {GROUP: Scope.GROUP, TOPIC: Scope.TOPIC}.get(resource_type, Scope.BROKER)
    return config_def(scope).keys_by_name(kafka_version)


def check_broker_name(node_id: int, name: str) -> None:
    """Raise INVALID_REQUEST unless the name is this broker's id, or "" for all brokers."""
    if not name:
        return
    try:
        broker_id = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if broker_id != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")


def check_logger_broker(node_id: int, name: str) -> None:
    """Raise INVALID_REQUEST unless the name is this broker's id."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    try:
        broker_id = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if broker_id != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id} but received {name}")


def check_broker(dynamic: DynamicConfig, after: Mapping[str, str], *, per_broker: bool) -> None:
    """Raise INVALID_REQUEST for read-only broker properties and invalid values, also with those of the other level."""
    static = dynamic.static
    known = config_def(Scope.BROKER).described_keys(static.kafka_version)
    fixed = [name for name in after if name in known and not is_updatable(known[name], per_broker=True)]
    if fixed:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {', '.join(fixed)}")
    moved = [name for name in ("listeners", "advertised.listeners") if name in after]
    if moved:
        message = f"{moved[0]}: the address of a broker's only listener cannot change while the broker runs"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    secure = [name for name in after if name.startswith("ssl.")]
    if secure:
        message = "These security configs can be dynamically updated only per-listener using the listener prefix"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{message}: {', '.join(secure)}")
    limits = {name: base for name in after for listener, base in (base_name(name),) if listener and base in LIMITS}
    local = [name for name in after if name in known and known[name].changes is UpdateMode.PER_BROKER]
    local += [name for name in after if is_local(name)]
    if local and not per_broker:
        message = "Cannot update these configs at default cluster level, broker id must be specified"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{message}: {', '.join(local)}")
    try:
        for name, base in limits.items():
            known[base].parse(after[name])
        together = {**dynamic.default, **after} if per_broker else {**after, **dynamic.own}
        topic_config(merge(static, together), {})
    except (ConfigError, KafkaError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    before = {**dynamic.default, **dynamic.own}
    for name in THREADS & known.keys():
        fallback = static.given.get(name) or known[name].default or "1"
        old, new = (int(layer.get(name, fallback)) for layer in (before, together))
        if new != old and not max(old // 2, 1) <= new <= old * 2:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Dynamic thread count update validation failed for {name}={new}, "
                f"value should be between half and double the current value {old}",
            )


async def _topic_check(services: Services, name: str) -> Callable[[Mapping[str, str], Mapping[str, str]], None]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    image = services.metadata.image
    if services.profile.answers_like_a_quorum:
        check_topic_name(name)
    if name not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    def check(before: Mapping[str, str], after: Mapping[str, str]) -> None:
        check_topic_properties(
            services.settings.kafka_version, {name: after[name] for name in after if before.get(name) != after[name]}
        )
        config = topic_config(services.settings, after)
        shown = image.topics[name]
        grown = shown.generation == 0 and shown.initial_partition_count != shown.undeleted_partition_count
        if (
            grown
            and config.enable_ordered_delivery
            and not topic_config(services.settings, before).enable_ordered_delivery
        ):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{ORDERED}=true is refused: the topic '{name}' was resized without it, so its keys have moved",
            )

    return check


def _group_check(services: Services, name: str) -> Callable[[Mapping[str, str], Mapping[str, str]], None]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    return lambda _, after: check_group_config(services.settings, after)


def _subscription_check(name: str) -> Callable[[Mapping[str, str], Mapping[str, str]], None]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    return lambda _, after: subscriptions.check(after)


def _broker_check(services: Services, *, per_broker: bool) -> Callable[[Mapping[str, str], Mapping[str, str]], None]:
    dynamic = services.dynamic

    def check(before: Mapping[str, str], after: Mapping[str, str]) -> None:
        check_broker(dynamic, after, per_broker=per_broker)
        changed = [name for name in after if before.get(name) != after[name]]
        if fixed := [name for name in changed if is_fixed(name, dynamic.static.listening)]:
            message = "Configs cannot be updated dynamically for an existing listener, set them at the broker's start"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{message}: {', '.join(fixed)}")
        for trial in dynamic.trials if per_broker else ():
            try:
                trial(after)
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

    return check
