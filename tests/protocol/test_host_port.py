"""HOST:PORT is read back, every option with an address refuses the same mistakes, and no other code writes one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from anabranch.broker.authorization.peer import Peer
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.config_def import ConfigError
from anabranch.broker.config.listeners import listeners_in
from anabranch.cli.main import cli
from anabranch.cli.node import address, place
from anabranch.cli.zookeeper import quorum_of
from anabranch.clients.config import parse_servers
from anabranch.clients.streams.assignment_info import Host
from anabranch.control.endpoint import Address
from anabranch.protocol.host_port import format_host_port, parse_host, parse_host_port
from tests.cases import for_each

ROOT = Path(__file__).parents[2]

HOSTS = ("127.0.0.1", "kafka.example", "kafka.example.", "a_b", "b\u00fccher", "::1", "fe80::1%eth0", "::ffff:10.0.0.1")


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
    *("a..b:1", ".a:1", "a..:1", f"{'x' * 64}.b:1", "a\0:1", "\u0130..:1", "\u00fc" * 60 + ":1"),
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


OPTIONS: dict[tuple[str, str], tuple[str, ...]] = {
    ("--host", ""): ("up --host a..b", "proxy --upstream h:1 --host a..b"),
    ("--listener", "NAME://HOST:PORT"): ("up --listener A://::1:1", "node --id 1 --zookeeper h --listener A://::1:1"),
    ("--advertised-listener", "NAME://HOST:PORT"): ("node --id 1 --zookeeper h --advertised-listener A://::1:1",),
    ("--advertise", "HOST[:PORT]"): (
        *("up --advertise [::1:1", "proxy --upstream h:1 --advertise [::1:1"),
        "node --id 1 --zookeeper h --advertise [::1:1",
    ),
    ("--zookeeper", "built-in|local|HOST:PORT"): ("up --processes --zookeeper ::1:1",),
    ("--zookeeper", "HOST:PORT[,...][/CHROOT]"): (
        *("node --id 1 --zookeeper h:1,::1:2181/chroot", "control serve --control :0 --zookeeper ::1:1"),
    ),
    ("--control", "HOST:PORT"): (
        *("up --control ::1:1", "proxy --upstream h:1 --control ::1:1"),
        *("node --id 1 --zookeeper h --control ::1:1", "control serve --zookeeper h --control ::1:1"),
        "streams examples/flights.py:topology --application-id a --state-dir s --control ::1:1",
    ),
    ("--bootstrap-server", "HOST:PORT[,...]"): (
        *("topics list --bootstrap-server ::1:1", "context create here --bootstrap-server ::1:1"),
        "streams examples/flights.py:topology --application-id a --state-dir s --bootstrap-server ::1:1",
        "audit --topic t --bootstrap-server ::1:1",
    ),
    ("--to", "HOST:PORT[,...]"): ("replay --to ::1:1 /dev/null",),
    ("--upstream", "HOST:PORT[,...]"): ("proxy --upstream ::1:1",),
    ("--listen", "HOST:PORT"): ("node --id 1 --zookeeper h --listen ::1:1", "zookeeper --listen ::1:1"),
    ("--server", "ID=HOST[:PORT:PORT]"): ("zookeeper --id 1 --data-dir d --server 1=[::1]:70000:1",),
    ("server", "HOST:PORT"): ("health ::1:1", "health --role zookeeper ::1:1"),
}
"""Each kind of option with an address, and commands with a malformed one."""
OTHERS = {
    ("--cluster", "DIR|HOST:PORT"): "compared with the names of clusters that run",
    ("--control", "URL"): "a URL, which has its own brackets",
    ("--schema-registry", "URL"): "a URL",
    ("--host", "ADDRESS"): "of an ACL: an address without a port",
}


def kinds_of_addresses(command: click.Command = cli) -> Iterator[tuple[str, str]]:
    """The name and metavar of each option and argument that has an address."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from kinds_of_addresses(found)
        return
    for one in command.params:
        kind = (one.opts[0], one.metavar or "")
        if re.search("HOST|ADDRESS|URL", kind[1]) or one.name == "host":
            yield kind


def test_every_option_with_an_address_is_among_the_cases() -> None:
    assert set(kinds_of_addresses()) == OPTIONS.keys() | OTHERS.keys()


@for_each(command for commands in OPTIONS.values() for command in commands)
def test_command_refuses_malformed_address_before_it_starts(command: str) -> None:
    result = CliRunner().invoke(cli, command.split(), prog_name="anabranch")
    assert (result.exit_code, type(result.exception)) == (2, SystemExit), (result.output, result.exception)
    assert "with an IPv6 address in brackets" in " ".join(result.output.split())


def test_no_other_code_joins_a_host_and_a_port() -> None:
    """It would write an IPv6 address without brackets. A constant in capitals is an IPv4 address."""
    joined = re.compile(r"\{[^{}A-Z]*(?:host|address)[^{}A-Z]*\}:\{|\{[^{}A-Z]+\}:\{[^{}]*\bport\b[^{}]*\}")
    written_here = {"protocol/host_port.py", "src/anabranch/cli/zookeeper.py"}
    for folder in ("broker", "chaos", "clients", "controller", "protocol", "spark_jobs", "src"):
        for file in (ROOT / folder).rglob("*.py"):
            if str(file.relative_to(ROOT)) not in written_here:
                assert not (found := joined.search(file.read_text())), f"{file}: {found}: call format_host_port"


def test_ipv6_peer_of_a_connection_is_shown_in_brackets() -> None:
    assert str(Peer("::1", 5000)) == "[::1]:5000"
