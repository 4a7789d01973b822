"""`--metrics-port` on nodes, and a node without it, which imports no metrics code."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import urllib.request

import pytest
from click.testing import CliRunner

from anabranch.cli.main import cli
from anabranch.cluster.processes import ProcessCluster
from anabranch.runtime.sockets import free_ports
from tests.running import running


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def test_all_brokers_of_process_share_one_endpoint() -> None:
    with running("up", "--port", "0", "--brokers", "2", "--metrics-port", "0") as ready:
        assert list(ready) == ["bootstrap", "metrics"]
        text = read(ready["metrics"])
        assert 'anabranch_brokers{node="1"} 2.0' in text
        assert 'anabranch_brokers{node="2"} 2.0' in text


def test_without_metrics_port_ready_line_is_unchanged() -> None:
    with running("up", "--port", "0", "--brokers", "1") as ready:
        assert list(ready) == ["bootstrap"]


def test_port_in_use_fails_the_start() -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = str(used.getsockname()[1])
        done = CliRunner().invoke(cli, ["up", "--port", "0", "--brokers", "1", "--metrics-port", port])
    assert done.exit_code == 1
    assert "cannot start" in done.output


def test_missing_prometheus_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "anabranch.broker.metrics.endpoint", raising=False)
    done = CliRunner().invoke(cli, ["up", "--port", "0", "--brokers", "1", "--metrics-port", "0"])
    assert done.exit_code == 2
    assert "pip install 'anabranch[metrics]'" in done.output


def test_separate_processes_need_explicit_metrics_ports() -> None:
    done = CliRunner().invoke(cli, ["up", "--processes", "--zookeeper", "local", "--metrics-port", "0"])
    assert done.exit_code == 2
    assert "the port of the first broker" in done.output


def test_without_metrics_port_nothing_is_imported() -> None:
    """A cluster and everything that serves requests, in a fresh interpreter."""
    code = (
        "import asyncio, sys\n"
        "import anabranch.cli.node, anabranch.cli.up\n"
        "from anabranch.cluster.in_process import Cluster\n"
        "from anabranch.cli.metrics import metrics_endpoint\n"
        "from anabranch.broker.dispatch.dispatcher import HANDLERS\n"
        "[row.load() for row in HANDLERS]\n"
        "async def whole():\n"
        "    async with metrics_endpoint('127.0.0.1', None) as metrics, Cluster(1) as cluster:\n"
        "        metrics.show(cluster.nodes[1])\n"
        "asyncio.run(whole())\n"
        "print([name for name in sys.modules if name.startswith(('prometheus_client', 'anabranch.broker.metrics'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.processes
@pytest.mark.zookeeper
async def test_each_process_has_its_endpoint() -> None:
    """Two processes with a real ZooKeeper: a node, and a spare controller."""
    first, second = 0, 0
    while second != first + 1:
        first, second = free_ports("127.0.0.1", 2)
    async with asyncio.timeout(60), ProcessCluster(1, controllers=1, metrics_port=first) as cluster:
        urls = [f"http://127.0.0.1:{port}/metrics" for port in (first, second)]
        texts = [await asyncio.to_thread(read, url) for url in urls]
        assert 'anabranch_brokers{node="1"} 1.0' in texts[0]
        assert 'anabranch_controller_active{node="100"} 1.0' in texts[1]
        assert len(cluster.nodes) == 2
