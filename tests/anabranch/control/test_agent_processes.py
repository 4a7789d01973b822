"""A node process with an agent: real signals, a real ZooKeeper, and the endpoint beside the one for metrics."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch import Admin, NewTopic
from anabranch.clients.connection import Connection
from anabranch.control.agent_address import read_addresses
from anabranch.control.client import ControlClient
from anabranch.control.control_error import ControlError
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.protocol.apis.list_groups import ListGroupsRequest
from tests.anabranch.control.agents import SMALL

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]
TOKEN = "a token of this test"


class AgentProcess:
    """`anabranch node --control` as a process."""

    def __init__(self, zookeeper: str, directory: Path) -> None:
        command = [sys.executable, "-m", "anabranch.cli.main", "node", "--id", "1", "--zookeeper", zookeeper]
        command += ["--listen", "127.0.0.1:0", "--data-dir", str(directory), "--metrics-port", "0"]
        command += ["--control", "127.0.0.1:0", "--control-journal", "10", "--log-level", "warning"]
        command += [word for name, value in SMALL.items() for word in ("--config", f"{name}={value}")]
        environment = {**os.environ, "ANABRANCH_CONTROL_TOKEN": TOKEN}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready.startswith("ready "), self.process.communicate()
        self.told = dict(word.split("=", 1) for word in ready.split()[1:])
        self.client = ControlClient(self.told["control"], TOKEN)

    @property
    def bootstrap_servers(self) -> str:
        return self.told["listen"]

    def changed(self) -> int:
        """Wait until a signal has stopped or ended the process; returns its status."""
        return os.waitpid(self.process.pid, os.WUNTRACED)[1]

    def last_event(self, following: Callable[[], object]) -> dict[str, object]:
        """Follow the events until the stream ends; `following` is called at the first. Returns the last one."""
        last: dict[str, object] = {}
        try:
            for row in self.client.follow():
                if not last:
                    following()
                last = dict(row)
        except (OSError, ValueError):
            pass
        return last

    def close(self) -> str:
        """End the process; returns its log."""
        self.process.kill()
        return self.process.communicate()[1]


async def list_groups(servers: str) -> int:
    host, port = servers.rsplit(":", 1)
    connection = await Connection.open(host, int(port), client_id="test")
    try:
        return int((await connection.call(ListGroupsRequest())).error_code)
    finally:
        await connection.close()


async def test_rules_stop_and_kill_the_process_and_its_last_event_is_the_kill(
    zookeeper_hosts: str, tmp_path: Path
) -> None:
    node = await asyncio.to_thread(AgentProcess, zookeeper_hosts, tmp_path)
    try:
        async with asyncio.timeout(120):
            await beside_metrics_and_with_a_token(node)
            await is_in_zookeeper(node, zookeeper_hosts)
            await asyncio.to_thread(node.client.ask, "POST", "/v1/faults", {"api": "ListGroups", "node": "freeze"})
            asking = asyncio.ensure_future(list_groups(node.bootstrap_servers))
            status = await asyncio.to_thread(node.changed)
            assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGSTOP
            assert not asking.done()
            node.process.send_signal(signal.SIGCONT)
            assert await asking == 0
            rule = {"name": "fatal", "step": "create", "node": "kill"}
            await asyncio.to_thread(node.client.ask, "POST", "/v1/faults", rule)
            loop, begun = asyncio.get_running_loop(), asyncio.Event()
            notice = functools.partial(loop.call_soon_threadsafe, begun.set)
            following = asyncio.ensure_future(asyncio.to_thread(node.last_event, notice))
            await begun.wait()
            async with Admin(node.bootstrap_servers) as admin:
                creating = asyncio.ensure_future(admin.create_topics([NewTopic(name="t", partitions=1)]))
                status = await asyncio.to_thread(node.changed)
                creating.cancel()
                await asyncio.gather(creating, return_exceptions=True)
            assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            last = await following
            assert (last["kind"], last["rule"], last["step"]) == ("fault", "fatal", "create:1")
    finally:
        log = await asyncio.to_thread(node.close)
    assert "node 1 sends itself SIGKILL, because of a rule" in log


async def beside_metrics_and_with_a_token(node: AgentProcess) -> None:
    def scrape() -> bytes:
        with urllib.request.urlopen(node.told["metrics"], timeout=30) as answer:
            return bytes(answer.read())

    assert b"anabranch_" in await asyncio.to_thread(scrape)
    with pytest.raises(ControlError) as refused:
        await asyncio.to_thread(ControlClient(node.told["control"]).ask, "GET", "/v1/agent")
    assert refused.value.status == 401
    row = await asyncio.to_thread(node.client.ask, "GET", "/v1/agent")
    assert (row["node"], row["pid"]) == (1, node.process.pid)


async def is_in_zookeeper(node: AgentProcess, zookeeper: str) -> None:
    session = await open_kazoo(zookeeper)
    try:
        (address,) = await read_addresses(session)
    finally:
        await session.close()
    assert (address.node_id, address.url, address.pid) == (1, node.told["control"], node.process.pid)
