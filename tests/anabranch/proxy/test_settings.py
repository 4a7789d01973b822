"""The ports that a proxy gives to its clients."""

from __future__ import annotations

import pytest

from anabranch.proxy.settings import ProxySettings


@pytest.mark.parametrize(("advertised_port", "expected"), [(0, [19092, 19093, 19095]), (9092, [9092, 9093, 9095])])
def test_advertised_ports_keep_their_distance_from_the_first(advertised_port: int, expected: list[int]) -> None:
    settings = ProxySettings(upstream=(("kafka", 9092),), port=19092, advertised_port=advertised_port)
    assert [settings.port_for_clients(port) for port in (19092, 19093, 19095)] == expected
