"""The properties of one listener: its own values, then those for all listeners, then Kafka's defaults.

    listener.name.external.scram-sha-256.sasl.jaas.config   one mechanism of one listener
    listener.name.external.ssl.keystore.location            one listener
    ssl.keystore.location                                   all listeners

Two exceptions are Kafka's: `sasl.jaas.config` needs the prefix of listener and mechanism, and `ssl.client.auth` without
a prefix applies to SSL listeners only. Sources: `JaasContext.loadServerContext`, `ChannelBuilders`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from anabranch.broker.config.config_def import ConfigError, Scope, config_def
from anabranch.broker.config.listeners import PREFIX, Listener

log: Final = logging.getLogger(__name__)


class ListenerProperties:
    """Looks up the properties of one listener."""

    def __init__(self, listener: Listener, given: Mapping[str, str]) -> None:
        self.listener = listener
        self._given = given
        self._prefix = f"{PREFIX}{listener.name.lower()}."

    def get(self, name: str) -> str:
        """Return a property's value, or its default. Raises ConfigError."""
        key = config_def(Scope.BROKER).keys_by_name()[name]
        own = self._given.get(self._prefix + name)
        text = own if own is not None else self._given.get(name)
        return key.normal(text) if text is not None else key.default or ""

    def of_mechanism(self, name: str, mechanism: str) -> str:
        """Return a property's value for one SASL mechanism."""
        own = self._given.get(f"{self._prefix}{mechanism.lower()}.{name}")
        return own if own is not None else self.get(name)

    def jaas(self, mechanism: str) -> str:
        """Return the login module of a mechanism. Raises ConfigError if it is missing."""
        name = f"{self._prefix}{mechanism.lower()}.sasl.jaas.config"
        text = self._given.get(name, "")
        if not text:
            if "sasl.jaas.config" in self._given:
                log.warning(
                    "sasl.jaas.config is ignored: it should be prefixed with listener and mechanism, as %s", name
                )
            raise ConfigError(f"{name} is missing: it configures the login module of {mechanism}")
        return text

    @property
    def client_auth(self) -> str:
        """Whether clients authenticate with a certificate: none, requested or required."""
        if self.listener.protocol != "SSL" and self._prefix + "ssl.client.auth" not in self._given:
            return "none"
        return self.get("ssl.client.auth")
