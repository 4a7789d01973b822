"""A listener's property overrides the general one, with Kafka's two exceptions."""

from __future__ import annotations

import pytest

from anabranch.broker.authentication.listener_properties import ListenerProperties
from anabranch.broker.config.broker_settings import ConfigError
from anabranch.broker.config.listeners import Listener

SASL = Listener("OUT", "SASL_SSL", "127.0.0.1", 9093)
SSL = Listener("OUT", "SSL", "127.0.0.1", 9093)


def test_most_specific_listener_property_takes_precedence() -> None:
    given = {
        "ssl.keystore.type": "PKCS12",
        "listener.name.out.ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PKCS12",
        "connections.max.reauth.ms": "1",
        "listener.name.out.connections.max.reauth.ms": "2",
        "listener.name.out.plain.connections.max.reauth.ms": "3",
    }
    properties = ListenerProperties(SASL, given)
    assert properties.get("ssl.keystore.type") == "PEM"
    assert properties.get("ssl.truststore.type") == "PKCS12"
    assert properties.get("sasl.server.max.receive.size") == "524288"
    assert properties.of_mechanism("connections.max.reauth.ms", "PLAIN") == "3"
    assert properties.of_mechanism("connections.max.reauth.ms", "SCRAM-SHA-256") == "2"


def test_jaas_config_needs_the_prefix_of_its_mechanism(caplog: pytest.LogCaptureFixture) -> None:
    given = {"sasl.jaas.config": "secret", "listener.name.out.plain.sasl.jaas.config": "m required;"}
    assert ListenerProperties(SASL, given).jaas("PLAIN") == "m required;"
    with pytest.raises(ConfigError, match=r"listener\.name\.out\.oauthbearer\.sasl\.jaas\.config is missing"):
        ListenerProperties(SASL, given).jaas("OAUTHBEARER")
    assert "should be prefixed" in caplog.text
    assert "secret" not in caplog.text


def test_ssl_client_auth_applies_to_sasl_ssl_only_with_a_listener_prefix() -> None:
    given = {"ssl.client.auth": "required"}
    assert ListenerProperties(SSL, given).client_auth == "required"
    assert ListenerProperties(SASL, given).client_auth == "none"
    assert ListenerProperties(SASL, {"listener.name.out.ssl.client.auth": "requested"}).client_auth == "requested"
