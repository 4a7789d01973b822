"""Nodes as processes with their ZooKeeper: spare controller, forwarding, kills and restarts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.node.start_settings import start_settings
from anabranch.cluster.node_process import NodeFailed
from anabranch.cluster.processes import FIRST_CONTROLLER_ID, ProcessCluster
from anabranch.controller.zk.kazoo_session import open_kazoo
from tests.node_processes import node_processes
from tests.secured.certificates import files, plain_users

SECURED = "SASL_SSL"
pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]
SPARE = FIRST_CONTROLLER_ID
ANABRANCH = (sys.executable, "-m", "anabranch.cli.main")


async def active_controller(cluster: ProcessCluster) -> bytes:
    session = await open_kazoo(cluster.zookeeper)
    try:
        data, _ = await session.get("/controller")
    finally:
        await session.close()
    return data


async def test_spare_controller_becomes_active_and_its_failure_is_survived() -> None:
    """The spare starts first and is active; brokers forward clients' requests. It is killed, a broker takes over, and
    it returns.
    """
    async with asyncio.timeout(100), ProcessCluster(3, controllers=1, zookeeper="local") as cluster:
        assert b'"brokerid":100' in (await active_controller(cluster)).replace(b" ", b"")
        written = cluster.nodes[1].properties_path
        assert "zookeeper.session.timeout.ms=6000" in written.read_text()
        assert written.stat().st_mode & 0o777 == 0o600, "passwords are for its user only"
        assert "zookeeper.session.timeout.ms" not in " ".join(cluster.nodes[1].command()), "and on no command line"
        async with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
            assert (await admin.describe_cluster()).controller_id in (1, 2, 3)
            await admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=3)])
            await producer.send_and_wait("t", b"before", key=b"k")
            await admin.create_partitions("t", 3)
            await admin.wait_for_generation("t", 1)
            await cluster.kill(SPARE)
            await producer.send_and_wait("t", b"while nobody rules", key=b"k")
            await admin.create_partitions("t", 4)
            assert b'"brokerid":100' not in (await active_controller(cluster)).replace(b" ", b"")
            await cluster.restart(SPARE)
            await cluster.nodes[2].stop()
            assert await cluster.nodes[2].wait_ended() == 0
            await cluster.wait_brokers(2)
            await cluster.restart(2)
            await cluster.wait_brokers(3)
            await admin.wait_for_topic("t", replicas=3)
            await producer.send_and_wait("t", b"after", key=b"k")


async def test_wait_for_brokers_fails_for_ended_node_and_stalls_for_frozen_node() -> None:
    async with asyncio.timeout(300), ProcessCluster(2) as cluster:
        await cluster.kill(2)
        with pytest.raises(NodeFailed, match=r"node 2 ended\n.+"):
            await cluster.wait_brokers(2)
        await cluster.nodes[2].start()
        os.kill(cluster.nodes[2].pid, signal.SIGSTOP)
        with pytest.raises(NodeFailed, match="node 2 is not ready: no progress for 1 s"):
            await cluster.nodes[2].wait_ready(stall_timeout_s=1)
        os.kill(cluster.nodes[2].pid, signal.SIGCONT)


@pytest.mark.parametrize(
    "zookeeper",
    [pytest.param((), id="built-in", marks=pytest.mark.costly), pytest.param(("--zookeeper", "local"), id="local")],
)
def test_up_with_processes_prints_one_line_and_stops_cleanly(zookeeper: Sequence[str]) -> None:
    command = [sys.executable, "-m", "anabranch.cli.main", "up", "--brokers", "2", "--port", "0"]
    command += ["--processes", *zookeeper, "--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready bootstrap=127.0.0.1:")
        assert line.count(":") == 2
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout.read() == ""


class Up:
    """`anabranch up --processes` on a directory, and what is asked of it by other processes."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        command = [*ANABRANCH, "up", "--brokers", "2", "--port", "0", "--data-dir", str(directory)]
        command += ["--processes", "--zookeeper", zookeeper, "--log-level", "error"]
        self.directory = directory
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready.startswith("ready "), self.process.communicate()
        self.servers = ready.split("bootstrap=")[1].strip()

    def nodes(self, *words: str) -> str:
        """`anabranch nodes ...`."""
        command = [*ANABRANCH, "nodes", *words, "--cluster", str(self.directory)]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout

    def pid_of(self, node_id: int) -> int:
        return next(one.pid for one in node_processes(self.directory) if one.node_id == node_id)

    def end(self, how: signal.Signals) -> tuple[int, str]:
        """Stop the process; return its status and stderr."""
        self.process.send_signal(how)
        _, said = self.process.communicate(timeout=100)
        for _ in range(1000):
            if not node_processes(self.directory):
                return self.process.returncode, said
            Event().wait(0.02)  # a process that somebody else started sets no event here
        raise AssertionError("nodes outlive their launcher")


@pytest.mark.parametrize("zookeeper", ["built-in", pytest.param("local", marks=pytest.mark.costly)])
def test_process_cluster_survives_kills_and_restarts_with_its_data(tmp_path: Path, zookeeper: str) -> None:
    """Kill -9 of a broker and of the launcher, and Ctrl-C: three runs in one directory, each with the records of
    earlier ones.
    """

    async def send(up: Up, value: bytes) -> None:
        async with Producer(up.servers) as producer:
            await producer.send_and_wait("t", value, key=b"k")

    async def values(up: Up, count: int) -> list[bytes]:
        found: list[bytes] = []
        async with Consumer("t", bootstrap_servers=up.servers, auto_offset_reset="earliest") as consumer:
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    found += [record.value or b"" for record in records]
        return found

    async def create(up: Up) -> None:
        async with Admin(up.servers) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=2)])

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(100):
                return await work

        return asyncio.run(bounded())

    first = Up(tmp_path / "data", zookeeper)
    run(create(first))
    killed = first.pid_of(2)
    os.kill(killed, signal.SIGKILL)
    run(send(first, b"one"))
    assert "node 2 at 127.0.0.1:" in first.nodes("list") and first.nodes("list").count("down") == 1
    assert first.nodes("start", "2") == f"started node 2 (pid {first.pid_of(2)})\n"
    _, said = first.end(signal.SIGKILL)
    assert said.count("\n") == 1 and said.startswith(f"node 2 (pid {killed}) was killed by signal 9; ")
    second = Up(tmp_path / "data", zookeeper)
    run(send(second, b"two"))
    assert second.end(signal.SIGINT) == (0, "")
    third = Up(tmp_path / "data", zookeeper)
    assert run(values(third, 2)) == [b"one", b"two"]
    assert third.end(signal.SIGTERM) == (0, "")


@pytest.mark.parametrize(
    ("properties", "expected"), [({}, "true"), ({"transaction.state.log.replication.factor": "2"}, "false")]
)
def test_internal_topics_are_limited_to_live_brokers_unless_replicas_are_configured(
    tmp_path: Path, properties: dict[str, str], expected: str
) -> None:
    cluster = ProcessCluster(3, directory=tmp_path, properties=properties)
    assert cluster._properties_of(1)["internal.topics.limited.to.live.brokers"] == expected
    start_settings(BrokerSettings(), cluster._properties_of(1))


async def test_process_cluster_authenticates_brokers_and_clients() -> None:
    """Two listeners: brokers and the launcher use TLS with a password; clients use either."""
    properties = {
        **files().properties,
        **plain_users(SECURED, admin="a", alice="b"),
        "inter.broker.listener.name": SECURED,
        "listener.security.protocol.map": f"{SECURED}:{SECURED},OPEN:PLAINTEXT",
    }
    listeners = [f"{SECURED}://127.0.0.1:0", "OPEN://127.0.0.1:0"]
    async with (
        asyncio.timeout(100),
        ProcessCluster(2, listeners=listeners, properties=properties) as cluster,
        Admin(
            cluster.bootstrap_servers,
            security_protocol=SECURED,
            sasl_mechanism="PLAIN",
            sasl_plain_username="alice",
            sasl_plain_password="b",
            ssl_cafile=str(files().ca),
        ) as admin,
    ):
        await admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=2)])
        open_door = next(one for one in cluster.nodes[1].listeners if one.name == "OPEN")
        async with Producer(f"{open_door.host}:{open_door.port}") as producer:
            await producer.send_and_wait("t", b"before", key=b"k")
            await cluster.kill(2)
            await cluster.restart(2)
            await cluster.wait_brokers(2)
            await producer.send_and_wait("t", b"after", key=b"k")
