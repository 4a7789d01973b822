"""Goal: an address is the same however it is written, and bounds for some of them mean what they say."""

from __future__ import annotations

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings, ConfigError
from anabranch.broker.config.client_addresses import address_bounds, canonical
from anabranch.broker.config.effective_config import with_properties


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::0001", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("node-3", "node-3"),
    ],
)
def test_addresses_are_compared_as_addresses(address: str, same: str) -> None:
    assert canonical(address) == same


@pytest.mark.parametrize(
    ("properties", "match"),
    [
        ({"max.connections.per.ip": "0"}, "name the addresses that may connect"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "no ADDRESS:COUNT"),
        ({"max.connections.per.ip.overrides": "10.0.0.1:5,nobody:5"}, "'nobody:5' is no ADDRESS:COUNT"),
        ({"max.connections.per.ip.overrides": "10.0.0.1:-5"}, "no ADDRESS:COUNT"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(properties: dict[str, str], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        with_properties(BrokerSettings(), properties)


def test_who_else_may_connect_can_be_named() -> None:
    settings = with_properties(
        BrokerSettings(),
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:5, [::1]:2, ::ffff:10.0.0.2:3"},
    )
    assert settings.max_connections_per_ip == 0
    assert address_bounds(settings.max_connections_per_ip_overrides) == {"10.0.0.1": 5, "::1": 2, "10.0.0.2": 3}
