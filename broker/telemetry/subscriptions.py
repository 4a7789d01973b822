"""Client metrics subscriptions (Kafka's CLIENT_METRICS resources): metrics, clients and push interval.

If several subscriptions match a client, it pushes the metrics of all, at the shortest interval. A hash identifies the
combination; broker and client detect changes by it. Expressions are RE2's, which match in linear time; Kafka's are
Java's. Pure. Sources: `ClientMetricsConfigs` and `ClientMetricsManager.computeSubscriptionId` of Kafka 4.1 (KIP-714).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from anabranch.broker.config.config_def import ConfigError, Scope, config_def
from anabranch.broker.coordinators.consumer_groups.regular_expressions import matcher
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.crc32c import crc32c
from anabranch.protocol.values import value

INTERVAL: Final = "interval.ms"
METRICS: Final = "metrics"
MATCH: Final = "match"
INTERVAL_DEFAULT_MS: Final = 300_000
INTERVAL_LEAST_MS: Final = 100
INTERVAL_MOST_MS: Final = 3_600_000
EVERYTHING: Final = "*"
_SEPARATOR: Final = re.compile(r"\s*,\s*")


@value
class Client:
    """The attributes of a client that subscriptions match."""

    client_instance_id: str
    """In Kafka's text format: 22 characters of base64."""
    client_id: str
    software_name: str
    software_version: str
    host: str
    port: int

    def attribute(self, name: str) -> str:
        """Return the attribute that an expression for `name` matches."""
        return _MATCHED[name](self)


_MATCHED: Final[Mapping[str, Callable[[Client], str]]] = {
    "client_id": lambda client: client.client_id,
    "client_instance_id": lambda client: client.client_instance_id,
    "client_software_name": lambda client: client.software_name,
    "client_software_version": lambda client: client.software_version,
    "client_source_address": lambda client: client.host,
    "client_source_port": lambda client: str(client.port),
}


@value
class Subscription:
    """One CLIENT_METRICS resource."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Callable[[str], bool]]

    def matches(self, client: Client) -> bool:
        """Whether the subscription matches a client."""
        return all(matches(client.attribute(name)) for name, matches in self.match.items())


@value
class ClientSubscription:
    """The combined subscription of one client."""

    metrics: tuple[str, ...]
    interval_ms: int

    def id_for(self, client_instance_id: bytes) -> int:
        """Return the subscription id, which depends on the client, the metrics and the interval."""
        text = f"[{', '.join(self.metrics)}]{self.interval_ms}"
        number = crc32c(text.encode()) ^ _java_hash(client_instance_id)
        return number - (1 << 32) if number >> 31 else number


def subscription_of(subscriptions: Iterable[Subscription], client: Client) -> ClientSubscription:
    """Combine the subscriptions that match a client."""
    metrics: set[str] = set()
    interval_ms = INTERVAL_DEFAULT_MS
    for one in subscriptions:
        if one.matches(client):
            metrics |= set(one.metrics)
            interval_ms = min(interval_ms, one.interval_ms)
    return ClientSubscription((EVERYTHING,) if EVERYTHING in metrics else tuple(sorted(metrics)), interval_ms)


def subscription(given: Mapping[str, str]) -> Subscription:
    """Parse a subscription's properties. Raises KafkaError: INVALID_REQUEST or INVALID_CONFIG, as in Kafka."""
    keys = config_def(Scope.CLIENT_METRICS).keys_by_name()
    strange = next((name for name in given if name not in keys), None)
    if strange is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {strange}")
    try:
        interval_ms = int(keys[INTERVAL].parse(given.get(INTERVAL, str(INTERVAL_DEFAULT_MS))))
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if not INTERVAL_LEAST_MS <= interval_ms <= INTERVAL_MOST_MS:
        message = f"{INTERVAL}={interval_ms} must be between {INTERVAL_LEAST_MS} and {INTERVAL_MOST_MS}, an hour"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    match = dict(map(_criterion, _parts(given.get(MATCH, ""))))
    return Subscription(tuple(_parts(given.get(METRICS, ""))), interval_ms, match)


def check(given: Mapping[str, str]) -> None:
    """Raise KafkaError if the properties are no valid subscription."""
    subscription(given)


def _parts(text: str) -> list[str]:
    return _SEPARATOR.split(text.strip()) if text.strip() else []


def _criterion(text: str) -> tuple[str, Callable[[str], bool]]:
    parts = text.rstrip("=").split("=")
    name = parts[0].strip()
    if len(parts) != 2 or name not in _MATCHED:
        known = ", ".join(_MATCHED)
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {text!r}; write NAME=EXPRESSION with {known}"
        )
    try:
        return name, matcher(parts[1].strip())
    except KafkaError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {error}") from None


def _java_hash(uuid: bytes) -> int:
    """Return Java's UUID hash, as 32 bits."""
    folded = int.from_bytes(uuid[:8]) ^ int.from_bytes(uuid[8:])
    return (folded >> 32) ^ (folded & 0xFFFFFFFF)
