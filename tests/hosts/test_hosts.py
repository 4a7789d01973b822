"""Three hosts with a ZooKeeper server and a node each, and a client on a fourth, with unplugged cables.

A host that nobody reaches any more is told nothing, unlike a process that was killed, whose connections are closed: all
that is noticed is silence. What was acknowledged stays, and keys keep their order; between the cuts the topic grows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.cluster import local_zookeeper
from tests.hosts.network import Network, why_unavailable

NODES = ("one", "two", "three")
ANABRANCH = (sys.executable, "-m", "anabranch.cli.main")

pytestmark = [pytest.mark.hosts, pytest.mark.zookeeper, pytest.mark.processes]


@pytest.fixture
def network(tmp_path: Path) -> Network:
    for reason in (why_unavailable(), local_zookeeper.why_unavailable()):
        if reason:
            pytest.skip(f"NO HOSTS: {reason}")
    return Network(tmp_path, *NODES, "client")


class Hosts:
    """The cluster, and the client's program."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        servers = [f"--server={number}={network.address(host)}" for number, host in enumerate(NODES, 1)]
        ensemble = [
            self._start(host, "zookeeper", f":2181 --id={number} --data-dir={folder / host / 'zk'}".split(" "), servers)
            for number, host in enumerate(NODES, 1)
        ]
        for one in ensemble:
            assert heard(one).startswith("ready zookeeper=")
        connect = ",".join(f"{network.address(host)}:2181" for host in NODES)
        quick = ["--config=zookeeper.session.timeout.ms=3000"]
        nodes = [
            self._start(
                host,
                "node",
                f":9092 --id={number} --data-dir={folder / host / 'node'}".split(" "),
                [f"--zookeeper={connect}", *quick],
            )
            for number, host in enumerate(NODES, 1)
        ]
        for one in nodes:
            assert heard(one).startswith("ready node=")
        bootstrap = ",".join(f"{network.address(host)}:9092" for host in NODES)
        self.client = network.run("client", "load", [sys.executable, "-m", "tests.hosts.client", bootstrap])

    def _start(self, host: str, what: str, words: list[str], more: list[str]) -> subprocess.Popen[str]:
        port, *rest = words
        listen = f"--listen={self.network.address(host)}{port}"
        return self.network.run(host, what, [*ANABRANCH, what, listen, *rest, *more])

    def ask(self, line: str) -> object:
        """Send a command to the client, and wait for its response."""
        assert self.client.stdin is not None
        self.client.stdin.write(f"{line}\n")
        self.client.stdin.flush()
        return json.loads(heard(self.client))


def heard(process: subprocess.Popen[str]) -> str:
    """The next line that a program writes; one that ended has written none."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"{process.args} ended with {process.wait()}"
    return line


@pytest.mark.costly
def test_each_host_is_cut_off_once_while_records_are_written(network: Network, tmp_path: Path) -> None:
    with network:
        hosts = Hosts(network, tmp_path)
        hosts.ask("acked 200")
        for count, host in zip((4, 6, 8), NODES, strict=True):
            network.cut(host)
            hosts.ask("acked 400")
            network.heal(host)
            hosts.ask("isr 3")
            hosts.ask(f"grow {count}")
        assert hosts.ask("end") == []
