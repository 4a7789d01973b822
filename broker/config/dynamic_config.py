"""A broker's current settings: its start settings, overridden by dynamic configuration (KIP-226).

Precedence: /config/brokers/ID, /config/brokers/<default>, start settings, Kafka's default. Invalid entries in ZooKeeper
(read-only properties, unparsable values, contradictions) are ignored with an error in the log, because another writer
may validate less than `broker.administration.config_alterations` does.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.broker_settings import field_name
from anabranch.broker.config.config_def import ConfigError, Scope, UpdateMode, config_def, text_of
from anabranch.broker.config.effective_config import topic_config, with_properties
from anabranch.broker.config.listeners import LIMITS, base_name
from anabranch.broker.config.storage_properties import COARSE
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.host_port import format_host_port

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.config.config_def import ConfigKey

log: Final = logging.getLogger(__name__)


class DynamicConfig:
    """The layers of one broker's configuration; `current` holds the effective settings."""

    def __init__(self, static: BrokerSettings) -> None:
        self.static = static
        self.default: Mapping[str, str] = {}
        """The dynamic properties of all brokers."""
        self.own: Mapping[str, str] = {}
        """The dynamic properties of this broker."""
        self.current = static
        self.trials: list[Callable[[Mapping[str, str]], None]] = []
        """Further checks of this broker's dynamic properties before a change; they raise ConfigError."""

    def update(self, *, default: Mapping[str, str] | None = None, own: Mapping[str, str] | None = None) -> bool:
        """Replace the dynamic properties with those in ZooKeeper. Return whether the settings changed."""
        if default is not None:
            self.default = valid_properties(default, self.static.kafka_version, per_broker=False)
        if own is not None:
            self.own = valid_properties(own, self.static.kafka_version, per_broker=True)
        before, self.current = self.current, self._merged()
        return before != self.current

    def _merged(self) -> BrokerSettings:
        """Return the effective settings. Properties that are valid only alone are left out, by level."""
        for properties in ({**self.default, **self.own}, self.own):
            try:
                settings = merge(self.static, properties)
                topic_config(settings, {})
            except (ConfigError, KafkaError) as reason:
                log.error("ignoring dynamic broker properties: %s", reason)
            else:
                return settings
        return self.static


def valid_properties(properties: Mapping[str, str], kafka_version: str, *, per_broker: bool) -> dict[str, str]:
    """Select the properties that are dynamic at this level and valid; log the others. Unknown names are kept."""
    if not properties:
        return {}
    kept, known = {}, config_def(Scope.BROKER).described_keys(kafka_version)
    for name, text in properties.items():
        listener, base = base_name(name)
        key = known.get(base) if listener and base in LIMITS else known.get(name)
        try:
            if key is not None and not is_updatable(key, per_broker=per_broker):
                raise ConfigError(f"{name} cannot be changed at this level while a broker runs")
            if key is not None:
                key.parse(text)
        except ConfigError as reason:
            log.error("ignoring a dynamic broker property: %s", reason)
        else:
            kept[name] = text
    return kept


def is_updatable(key: ConfigKey, *, per_broker: bool) -> bool:
    """Whether a property is dynamic for one broker (`per_broker`), or cluster-wide."""
    return key.changes is UpdateMode.ANYWHERE or (per_broker and key.changes is UpdateMode.PER_BROKER)


def merge(static: BrokerSettings, changed: Mapping[str, str]) -> BrokerSettings:
    """Apply dynamic properties to the start settings; `given` keeps the start properties."""
    if not changed:
        return static
    known = config_def(Scope.BROKER).described_keys(static.kafka_version)
    settings = with_properties(static, {name: text for name, text in changed.items() if name in known})
    return dataclasses.replace(settings, given=static.given)


def static_text(static: BrokerSettings, name: str) -> str | None:
    """The text of a property in the start settings; None for its default."""
    text = _start_value(static, name)
    if text is not None:
        return text
    if name in static.given:
        return static.given[name]
    if any(fine == name and coarse in static.given for coarse, (fine, _) in COARSE.items()):
        return None
    field = field_name(name)
    if not hasattr(static, field) or field == "log_dirs":
        return None
    content = getattr(static, field)
    default = next(one.default for one in dataclasses.fields(static) if one.name == field)
    key = config_def(Scope.BROKER).keys_by_name(static.kafka_version).get(name)
    if content == default or (key is not None and text_of(content) == key.default):
        return None
    return text_of(content)


def _start_value(static: BrokerSettings, name: str) -> str | None:
    """The text of a property whose field command-line options or arguments set, such as `broker.id`."""
    match name:
        case "broker.id" | "node.id":
            return str(static.node_id)
        case "listeners":
            return ",".join(map(str, static.listening))
        case "advertised.listeners" if any(one.advertised_host for one in static.listening):
            return ",".join(
                f"{one.name}://{format_host_port(one.reachable_host, one.reachable_port(one.port))}"
                for one in static.listening
            )
        case "log.dirs":
            return ",".join(static.directories) or None
    return None
