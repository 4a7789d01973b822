"""A cluster on `::1` can be reached by every address that it prints or returns.

Method: real commands and a cluster in this process on `::1`, and clients that get the printed addresses. A machine
without IPv6 skips them loudly.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch import Consumer, Producer
from anabranch.cli.start_errors import cannot_start
from anabranch.cluster.in_process import Cluster
from anabranch.cluster.local_zookeeper import LocalZooKeeper, why_unavailable
from anabranch.cluster.node_process import NodeProcess
from anabranch.cluster.zookeeper import is_free
from anabranch.control.client import ControlClient
from anabranch.control.endpoint import make_control_endpoint
from anabranch.protocol.host_port import format_host_port
from anabranch.proxy.proxy import Proxy
from anabranch.proxy.settings import ProxySettings
from anabranch.runtime import sockets
from anabranch.runtime.sockets import family_of, free_ports

PATIENCE_S = 60


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1: IPv6 addresses are NOT tested")


@contextlib.asynccontextmanager
async def command(*words: str) -> AsyncIterator[str]:
    """Run a command until its ready line has been read."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "anabranch.cli.main", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (line := (await process.stdout.readline()).decode()).startswith("ready"):
                assert line, f"{words} ended without a ready line"
        yield line.strip()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.communicate()


async def exchange(servers: str, topic: str = "t") -> None:
    """Produce one record and consume it."""
    async with asyncio.timeout(PATIENCE_S), Producer(servers) as producer:
        await producer.send_and_wait(topic, b"v")
    async with (
        asyncio.timeout(PATIENCE_S),
        Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        assert (await consumer.getone()).value == b"v"


def fetch(url: str) -> str:
    with urllib.request.urlopen(url) as response:
        return str(response.read().decode())


def test_host_with_an_ipv4_address_is_bound_as_ipv4() -> None:
    assert family_of("127.0.0.1") == family_of("localhost") == family_of("no.such.invalid") == socket.AF_INET
    assert family_of("::1") == socket.AF_INET6


def test_ports_of_an_address_that_this_machine_does_not_have_are_refused() -> None:
    with pytest.raises(OSError, match="assign requested address") as refused:
        free_ports("192.0.2.1", 1)  # an address for documentation
    assert "listen on one of its own" in cannot_start(refused.value)
    with pytest.raises(socket.gaierror):
        free_ports("no.such.invalid", 1)


def test_search_for_free_ports_ends_when_all_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(sockets, "FIRST_PORT", taken.getsockname()[1])
        monkeypatch.setattr(sockets, "PORTS", 1)
        with pytest.raises(OSError, match=r"fewer than 1 ports of 127\.0\.0\.1 are free"):
            free_ports("127.0.0.1", 1)


@ipv6
async def test_up_on_an_ipv6_host_prints_addresses_that_clients_reach() -> None:
    options = ("--brokers", "2", "--host", "::1", "--port", "0", "--control", "[::1]:0", "--metrics-port", "0")
    async with command("up", *options) as ready:
        words = dict(word.split("=", 1) for word in ready.split()[1:])
        assert re.fullmatch(r"\[::1\]:\d+,\[::1\]:\d+", words["bootstrap"])
        assert re.fullmatch(r"http://\[::1\]:\d+", words["control"])
        assert re.fullmatch(r"http://\[::1\]:\d+/metrics", words["metrics"])
        await exchange(words["bootstrap"])
        nodes = await asyncio.to_thread(ControlClient(words["control"]).ask, "GET", "/v1/nodes")
        assert len(nodes) == 2
        assert "# TYPE" in await asyncio.to_thread(fetch, words["metrics"])
        options = ("--upstream", words["bootstrap"], "--host", "::1", "--port", "0", "--control", "[::1]:0")
        async with command("proxy", *options) as ready:
            words = dict(word.split("=", 1) for word in ready.split()[1:])
            assert re.fullmatch(r"http://\[::1\]:\d+", words["control"])
            await exchange(words["bootstrap"])


@ipv6
async def test_cluster_with_an_ipv6_listener_returns_addresses_in_brackets() -> None:
    async with Cluster(
        1,
        listeners=["INTERNAL://127.0.0.1:0", "OUT://[::1]:0"],
        properties={
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,OUT:PLAINTEXT",
            "inter.broker.listener.name": "OUT",
        },
    ) as cluster:
        servers = cluster.bootstrap_servers_of("OUT")
        assert servers.startswith("[::1]:")
        await exchange(servers)


@ipv6
async def test_proxy_and_control_plane_on_an_ipv6_host_show_addresses_in_brackets() -> None:
    door = make_control_endpoint("[::1]:0", None)
    async with Cluster(1, host="::1", port=0) as cluster, door.open(cluster):
        assert cluster.bootstrap_servers.startswith("[::1]:")
        upstream = tuple(cluster.address(one) for one in cluster.nodes)
        async with Proxy(ProxySettings(upstream=upstream, host="::1")) as proxy:
            assert proxy.bootstrap_servers.startswith("[::1]:")
            await exchange(proxy.bootstrap_servers)
        assert isinstance(await asyncio.to_thread(ControlClient(door.url).ask, "GET", "/v1/nodes"), list)


@ipv6
@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("::1", "built-in"),
        pytest.param("::", "built-in", marks=pytest.mark.costly),
        pytest.param("::1", "local", marks=[pytest.mark.zookeeper, pytest.mark.costly]),
        pytest.param("::", "local", marks=pytest.mark.zookeeper),
    ],
)
async def test_zookeeper_on_an_ipv6_host_prints_an_address_that_nodes_reach(host: str, kind: str) -> None:
    if kind == "local" and (reason := why_unavailable()) is not None:
        pytest.skip(f"NO REAL ZOOKEEPER: {reason}")
    options = ("--built-in",) if kind == "built-in" else ()
    async with asyncio.timeout(PATIENCE_S), command("zookeeper", "--listen", f"[{host}]:0", *options) as ready:
        servers = ready.removeprefix("ready zookeeper=")
        assert servers.startswith("[::1]:")
        node = ("node", "--id", "1", "--zookeeper", servers, "--listen", "[::1]:0")
        async with command(*node) as ready:
            await exchange(ready.partition(" listen=")[2])


@ipv6
def test_ports_of_processes_and_zookeeper_are_free_ones_of_an_ipv6_host(tmp_path: Path) -> None:
    (port,) = free_ports("::1", 1)
    assert is_free("::1", port)
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        assert not is_free("::1", port)
    assert LocalZooKeeper(host="::1", port=port).hosts == f"[::1]:{port}"
    node = NodeProcess(1, "broker", "::1", port, tmp_path, f"[::1]:{port}", {})
    assert node.address == format_host_port("::1", port)
    assert node.command()[node.command().index("--listen") + 1] == f"[::1]:{port}"
