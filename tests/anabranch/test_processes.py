"""Nodes as processes against a real ZooKeeper: a spare controller that is active, forwarding, kills and restarts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from anabranch.processes import FIRST_CONTROLLER_ID, NodeFailed, ProcessCluster
from clients import Admin, NewTopic, Producer
from controller.zk.kazoo_session import open_kazoo

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]
SPARE = FIRST_CONTROLLER_ID


async def active_controller(cluster: ProcessCluster) -> bytes:
    """What /controller says."""
    session = await open_kazoo(cluster.zookeeper)
    try:
        data, _ = await session.get("/controller")
    finally:
        await session.close()
    return data


def test_a_spare_controller_rules_and_its_death_is_survived() -> None:
    """Goal: controllers can be killed without killing data.

    Method: the spare starts first and is active; clients reach it through brokers that forward; it is killed, and a
    broker takes over; then it comes back.
    """

    async def scenario() -> None:
        async with asyncio.timeout(100), ProcessCluster(3, controllers=1) as cluster:
            assert b'"brokerid":100' in (await active_controller(cluster)).replace(b" ", b"")
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
                assert await cluster.nodes[2].ended() == 0
                await cluster.wait_brokers(2)
                await cluster.restart(2)
                await cluster.wait_brokers(3)
                await admin.wait_for_topic("t", replicas=3)
                await producer.send_and_wait("t", b"after", key=b"k")

    asyncio.run(scenario())


def test_up_with_processes_prints_one_line_and_stops_cleanly() -> None:
    command = [sys.executable, "-m", "anabranch.main", "up", "--brokers", "2", "--port", "0"]
    command += ["--processes", "--zookeeper", "local", "--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready bootstrap=127.0.0.1:")
        assert line.count(":") == 2
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout.read() == ""


def test_a_node_that_cannot_start_says_why() -> None:
    async def scenario() -> None:
        cluster = ProcessCluster(1, zookeeper="127.0.0.1:1", properties={"num.partitions": "none"})
        with pytest.raises(NodeFailed, match="must be a whole number"):
            async with cluster:
                pass

    asyncio.run(scenario())


def test_a_node_without_zookeeper_says_so_in_one_line() -> None:
    command = [
        sys.executable,
        "-m",
        "anabranch.main",
        "node",
        "--id",
        "1",
        "--roles",
        "controller",
        "--log-level",
        "error",
    ]
    command += ["--zookeeper", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--config", "zookeeper.session.timeout.ms=500"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "Error: cannot start:" in ended.stderr and "no ZooKeeper answered at 127.0.0.1:1" in ended.stderr
    assert "Traceback" not in ended.stderr
