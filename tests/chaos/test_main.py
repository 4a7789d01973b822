"""The commands against a cluster that another process started: each does what it prints."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.chaos import nodes
from anabranch.cluster.processes import is_stopped
from anabranch.cluster.zookeeper_sessions import active_controller
from anabranch.controller.zk import paths
from anabranch.controller.zk.kazoo_session import open_kazoo

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

CHAOS = (sys.executable, "-m", "anabranch.chaos")
PATIENCE_S = 300.0


class Hand:
    """Runs commands on the cluster in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def __call__(self, *words: str, status: int = 0) -> str:
        process = await asyncio.create_subprocess_exec(*CHAOS, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said, complained = await process.communicate()
        assert process.returncode == status, complained.decode()
        return (said or complained).decode()

    async def on(self, command: str, node: int, *words: str, status: int = 0) -> str:
        return await self(command, str(node), "--cluster", str(self.directory), *words, status=status)

    def node(self, node_id: int) -> nodes.FoundNode:
        return nodes.find_node(node_id, cluster=str(self.directory))


@asynccontextmanager
async def launched(directory: Path) -> AsyncIterator[tuple[Hand, str, str]]:
    """`chaos up` in a process of its own: a hand for it, where its brokers are, and where its ZooKeeper is."""
    words = ("up", "--directory", str(directory), "--brokers", "2", "--controllers", "1", "--zookeepers", "1")
    process = await asyncio.create_subprocess_exec(*CHAOS, *words, stdout=subprocess.PIPE)
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert process.stdout is not None
            ready = (await process.stdout.readline()).decode()
            assert ready.startswith("ready "), ready
            addresses = dict(word.split("=", 1) for word in ready.split()[1:])
            yield Hand(directory), addresses["bootstrap"], addresses["zookeeper"]
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()
    assert not [one for one in nodes.running_nodes() if one.directory == str(directory)], "nothing is left behind"


async def test_nodes_are_killed_frozen_and_expired_and_links_broken(tmp_path: Path) -> None:
    async with launched(tmp_path) as (hand, bootstrap, zookeeper):
        assert f"node 2: pid {hand.node(2).pid}, running, {tmp_path}" in await hand("nodes")
        pid = hand.node(1).pid
        assert f"stopped node 1 (pid {pid})" in await hand.on("stop", 1)
        assert is_stopped(pid)
        assert f"resumed node 1 (pid {pid})" in await hand.on("resume", 1)
        assert not is_stopped(pid)
        session = await open_kazoo(zookeeper)
        before = await session.exists(paths.broker(1))
        assert before is not None
        assert f"ended session {before.ephemeral_owner:#x} of node 1" in await hand.on("expire", 1)
        while (after := await session.exists(paths.broker(1))) is None or after.czxid == before.czxid:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await session.close()
        await link_commands(hand, bootstrap)
        gone = hand.node(2).pid
        assert f"killed node 2 (pid {gone})" in await hand.on("kill", 2)
        assert f"no running node in {tmp_path} has id 2" in await hand.on("stop", 2, status=2)
        started = await hand.on("start", 2)
        assert f"started node 2 (pid {hand.node(2).pid})" in started
        assert hand.node(2).pid != gone
        assert "node 2 is running already" in await hand.on("start", 2, status=2)
        assert "has no node" not in (said := await hand.on("start", 9, status=2)) and "has a node 9" in said
        listed = await hand("nodes", "--cluster", f"{tmp_path}/.")
        assert sorted(line.split(":")[0] for line in listed.splitlines()) == ["node 1", "node 100", "node 2"]
        assert "no node runs in" in await hand("nodes", "--cluster", str(tmp_path / "elsewhere"), status=2)


async def link_commands(hand: Hand, bootstrap: str) -> None:
    at = ("--at", str(hand.directory))
    assert "began: drop client -> *" in await hand("drop", "client", "*", *at)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        pending = group.create_task(describe(bootstrap))
        while "met 0 times" in await hand("links", *at):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert not pending.done()
        assert "ended 1 link faults" in await hand("heal", *at)
    assert pending.result() == 2
    lasting = await hand("delay", "1", "*", "--by", "0.01", "--for", "0.3", *at)
    assert "began: delay 1 -> * 0.01 s" in lasting and "ended: delay 1 -> * 0.01 s, met " in lasting
    assert "began: hold 1 -> * api 56" in await hand("hold", "1", "*", "--api", "alter-partition", *at)
    assert "ended 1 link faults" in await hand("heal", *at)
    assert "connections * -> 2" in await hand("reset", "*", "2", *at)
    assert "no link has an end '9'; the ends are *, 100, " in await hand("drop", "client", "9", *at, status=2)
    assert "no link has an end 'me'" in await hand("cut", "me", "1", *at, status=2)
    assert "no link has an end '7'" in await hand("reset", "7", "*", *at, status=2)
    assert "no process listens at" in await hand("heal", "--at", str(hand.directory / "elsewhere"), status=2)


async def describe(bootstrap: str) -> int:
    async with Admin(bootstrap, request_timeout_ms=60000) as admin:
        return len((await admin.describe_cluster()).brokers)


async def test_controller_dies_at_chosen_step_and_disks_fill_up(tmp_path: Path) -> None:
    async with launched(tmp_path) as (hand, bootstrap, zookeeper):
        cluster = ("--cluster", str(hand.directory))
        async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            await admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=2)])
            await admin.wait_for_topic("t", replicas=2)
            crashing = asyncio.ensure_future(hand("crash-controller-at", "resize:after-plan", *cluster))
            while await active_controller(zookeeper) < 900:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await admin.create_partitions("t", 3)
            said = await crashing
            assert "died at resize:after-plan" in said and "took over after" in said
            assert (await admin.describe_topic("t")).generation == 1, "the successor finished it"
            await producer.send_and_wait("t", b"before", partition=0)
            leader = (await admin.describe_topic("t")).partitions[0].leader
            assert "files of at most 1 bytes" in await hand.on("fill-disk", leader, "--file-limit", "1")
            sending = await producer.send("t", b"meanwhile", partition=0)
            await asyncio.wait([sending], timeout=1)
            assert not sending.done() or sending.exception() is not None
            assert "files of any size" in await hand.on("fill-disk", leader, "--file-limit", "-1")
            await asyncio.wait([sending])
            await producer.send_and_wait("t", b"after", partition=0)
