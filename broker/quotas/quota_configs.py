"""Reads, alters and describes client quotas in ZooKeeper: /config/users, /config/clients, /config/ips.

    /config/users/U              a user                   /config/clients/C      a client id
    /config/users/U/clients/C    a client id of a user    /config/ips/I          an address
    <default>                    the default, in place of a name

Names are percent-encoded. Any node may change limits; a notification in /config/changes makes every node reload them.

Sources: `ZkAdminManager`, `QuotaConfigs`, `Sanitizer` of Kafka.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from anabranch.broker.config.config_changes import change_config, read_config
from anabranch.broker.quotas.client_quotas import DEFAULT, FETCH, PRODUCE, REQUEST
from anabranch.controller.zk.session import NoNode
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.quotas.client_quotas import ClientQuotas
    from anabranch.broker.quotas.connection_quotas import ConnectionQuotas
    from anabranch.controller.zk.session import ZkSession

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
CONNECTION_RATE: Final = "connection_creation_rate"
WHOLE_LIMITS: Final = frozenset({PRODUCE, FETCH, CONNECTION_RATE})
CLIENT_LIMITS: Final = frozenset({PRODUCE, FETCH, REQUEST, "controller_mutation_rate"})
IP_LIMITS: Final = frozenset({CONNECTION_RATE})
EPSILON: Final = 1e-6

Entity = dict[str, str | None]
"""Type -> name; None is the default of the type."""


@value
class Component:
    """A filter component of DescribeClientQuotas: a name, the default (`name` None), or any name if not `exact`."""

    exact: bool
    name: str | None = None

    def fits(self, name: str | None) -> bool:
        """Whether the component matches an entity's name."""
        return not self.exact or name == self.name


def sanitize(name: str | None) -> str:
    """Encode an entity's name as a znode's name."""
    return DEFAULT if name is None else quote(name, safe="")


def desanitize(node: str) -> str | None:
    """Decode a znode's name; None for the default."""
    return None if node == DEFAULT else unquote(node)


def limits_in(config: Mapping[str, str], known: frozenset[str] = CLIENT_LIMITS) -> dict[str, float]:
    """The limits in an entity's configuration."""
    limits = {}
    for name, text in config.items():
        if name in known:
            try:
                limit = float(text)
            except ValueError:
                continue  # another writer may validate less
            if not math.isnan(limit):
                limits[name] = limit
    return limits


async def entities(session: ZkSession) -> list[tuple[Entity, dict[str, float]]]:
    """Read all entities with limits: users, client ids, client ids of users, addresses."""
    users, clients, ips = await asyncio.gather(
        *(_children(session, f"/config/{kind}") for kind in ("users", "clients", "ips"))
    )
    of_users = await asyncio.gather(*(_children(session, f"/config/users/{user}/clients") for user in users))
    found: list[tuple[str, Entity]] = [(f"users/{user}", {USER: desanitize(user)}) for user in users]
    found += [(f"clients/{client}", {CLIENT_ID: desanitize(client)}) for client in clients]
    for user, nodes in zip(users, of_users, strict=True):
        both = [(f"users/{user}/clients/{node}", desanitize(node)) for node in nodes]
        found += [(path, {USER: desanitize(user), CLIENT_ID: client}) for path, client in both]
    found += [(f"ips/{ip}", {IP: desanitize(ip)}) for ip in ips]
    configs = await asyncio.gather(*(read_config(session, path) for path, _ in found))
    return [
        (entity, limits)
        for (_, entity), config in zip(found, configs, strict=True)
        if (limits := limits_in(config, IP_LIMITS if IP in entity else CLIENT_LIMITS))
    ]


async def _children(session: ZkSession, path: str) -> list[str]:
    try:
        return await session.children(path)
    except NoNode:
        return []


class QuotaWatch:
    """Loads the limits of one broker from ZooKeeper."""

    def __init__(
        self, quotas: ClientQuotas, connections: Callable[[], ConnectionQuotas], session: Callable[[], ZkSession]
    ) -> None:
        self._quotas = quotas
        self._connections = connections
        self._session = session

    async def load(self, _: str = "") -> None:
        """Read all limits: a notification names one entity, but limits are few and seldom change."""
        found = await entities(self._session())
        self._quotas.replace_limits(
            {
                (_entity_name(entity, USER), _entity_name(entity, CLIENT_ID)): limits
                for entity, limits in found
                if IP not in entity
            }
        )
        self._connections().set_address_limits(
            {entity[IP] or DEFAULT: limits[CONNECTION_RATE] for entity, limits in found if IP in entity}
        )


def _entity_name(entity: Entity, kind: str) -> str | None:
    return (entity[kind] or DEFAULT) if kind in entity else None


# --- describing --------------------------------------------------------------------------------------------------


def matching_entities(
    found: Iterable[tuple[Entity, dict[str, float]]], by_type: Mapping[str, Component], *, strict: bool
) -> list[tuple[Entity, dict[str, float]]]:
    """The entities that match all components of a filter; with `strict`, only those without other components."""
    return [
        (entity, limits)
        for entity, limits in found
        if all(kind in entity and component.fits(entity[kind]) for kind, component in by_type.items())
        and not (strict and entity.keys() - by_type.keys())
    ]


def checked_filter(components: Iterable[tuple[str, Component]]) -> dict[str, Component]:
    """Validate a filter, and return its components by type. Raises INVALID_REQUEST, UNSUPPORTED_VERSION."""
    by_type: dict[str, Component] = {}
    for kind, component in components:
        if kind == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if kind in by_type:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate {kind} filter component entity type")
        by_type[kind] = component
    if IP in by_type and len(by_type) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be used with user or "
            "clientId filter component.",
        )
    return by_type


# --- altering ----------------------------------------------------------------------------------------------------


async def alter_quotas(
    session: ZkSession, entity: Entity, changes: Iterable[tuple[str, float | None]], *, validate_only: bool
) -> None:
    """Set (or, with None, remove) the limits of an entity. Raises KafkaError."""
    path, known = place_of(entity)
    texts = {name: None if limit is None else checked_limit(name, limit, known) for name, limit in changes}

    def edit(before: Mapping[str, str]) -> dict[str, str]:
        merged: dict[str, str | None] = {**before, **texts}
        return {name: text for name, text in merged.items() if text is not None}

    if not validate_only:
        await change_config(session, path, edit)


def place_of(entity: Entity) -> tuple[str, frozenset[str]]:
    """The path of an entity's configuration, and the names of its possible limits. Raises INVALID_REQUEST."""
    if not entity:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    names = {kind: sanitize(name) for kind, name in entity.items()}
    if IP in names:
        if len(names) > 1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Invalid quota entity combination, IP entity should not be used with user/client ID entity.",
            )
        _check_ip(entity[IP])
        return f"ips/{names[IP]}", IP_LIMITS
    if USER not in names:
        return f"clients/{names[CLIENT_ID]}", CLIENT_LIMITS
    client = f"/clients/{names[CLIENT_ID]}" if CLIENT_ID in names else ""
    return f"users/{names[USER]}{client}", CLIENT_LIMITS


def checked_limit(name: str, limit: float, known: frozenset[str]) -> str:
    """Validate a limit, and format it as text. Raises INVALID_REQUEST."""
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {name}")
    if math.isnan(limit):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {name} must be a number")
    if name not in WHOLE_LIMITS:
        return repr(float(limit))
    try:
        whole = int(limit + EPSILON)
    except (ValueError, OverflowError):
        whole = None
    if whole is None or abs(whole - limit) > EPSILON:
        kind = "INT" if name in IP_LIMITS else "LONG"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {name} must be a {kind} value")
    return str(whole)


def _check_ip(ip: str | None) -> None:
    try:
        if ip is not None:
            ipaddress.ip_address(ip)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{ip} is not a valid IP or resolvable host.") from None
