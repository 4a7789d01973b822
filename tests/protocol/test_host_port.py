"""HOST:PORT is read back, and every parser refuses the same mistakes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import click
import pytest

from anabranch.broker.authorization.peer import Peer
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.config_def import ConfigError
from anabranch.broker.config.listeners import listeners_in
from anabranch.cli.node import address, place
from anabranch.cli.zookeeper import quorum_of
from anabranch.clients.config import parse_servers
from anabranch.clients.streams.assignment_info import Host
from anabranch.control.endpoint import Address
from anabranch.protocol.host_port import format_host_port, parse_host, parse_host_port
from tests.cases import for_each

HOSTS = ("127.0.0.1", "kafka.example", "::1", "fe80::1%eth0", "::ffff:10.0.0.1")


@pytest.mark.parametrize("host", HOSTS)
def test_formatted_address_is_parsed_to_the_same_host_and_port(host: str) -> None:
    text = format_host_port(host, 9092)
    assert parse_host_port(text) == (host, 9092)
    assert text == (f"[{host}]:9092" if ":" in host else f"{host}:9092")


def test_address_without_host_has_an_empty_host() -> None:
    assert parse_host_port(":0") == ("", 0)
    assert parse_host("[::1]") == "::1"


WRONG = (
    *("host", "host:", "host:x", "host:65536", "host:-1", "host:+1", "host:\u0661"),
    *("::1:9092", "[::1:9092", "::1]:9092", "[]:9092", "[host]:9092", "[127.0.0.1]:1", "[::1%]:9092", "[[::1]]:9092"),
)


@pytest.mark.parametrize("text", WRONG)
def test_malformed_address_is_refused_with_syntax(text: str) -> None:
    with pytest.raises(ValueError, match="write HOST:PORT, with an IPv6 address in brackets"):
        parse_host_port(text)


def listener(text: str) -> tuple[str, int]:
    (one,) = listeners_in({"listeners": f"PLAINTEXT://{text}"}, BrokerSettings().first_listener)
    return one.host, one.port


READERS: dict[str, Callable[[str], Any]] = {
    "bootstrap servers": lambda text: parse_servers(text)[0],
    "--listen": address,
    "--control": lambda text: (Address.parse(text).host, Address.parse(text).port),
    "application.server": Host.parse,
    "listeners": listener,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("host", HOSTS)
def test_address_option_accepts_ipv6_in_brackets(reader: Callable[[str], Any], host: str) -> None:
    assert reader(format_host_port(host, 9092)) == (host, 9092)


@for_each(product(READERS.values(), WRONG))
def test_address_option_refuses_malformed_address(reader: Callable[[str], Any], text: str) -> None:
    with pytest.raises((ValueError, ConfigError, click.UsageError), match="write HOST:PORT"):
        reader(text)


def test_advertised_host_is_an_address_with_or_without_brackets() -> None:
    assert place("::1") == place("[::1]") == ("::1", 0)
    assert place("fe80::1%eth0") == ("fe80::1%eth0", 0)
    with pytest.raises(click.UsageError, match="--advertise"):
        place("a:b:c")


def test_zookeeper_connect_accepts_ipv6_addresses_in_brackets() -> None:
    servers = ["1=[::1]:2888:3888", "2=[fd00::2]"]
    assert quorum_of(servers, 1, "data") == {1: "[::1]:2888:3888", 2: "[fd00::2]:2888:3888"}


def test_ipv6_peer_of_a_connection_is_shown_in_brackets() -> None:
    assert str(Peer("::1", 5000)) == "[::1]:5000"
