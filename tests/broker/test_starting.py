"""A node that starts while ZooKeeper is unavailable comes up when ZooKeeper does.

Method: the session is taken away, or the connection lost, after the first request of a start, after the second, and so
on to the last; and a real ZooKeeper is stopped by SIGSTOP while a node starts.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import random
import signal
from collections.abc import Callable
from typing import TypeVar

import pytest

from anabranch.broker.membership.registration import DuplicateBroker
from anabranch.broker.node.app import Node
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.cluster.in_process import Cluster
from anabranch.cluster.local_zookeeper import LocalZooKeeper
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper
from anabranch.controller.zk.session import NoServerListens
from tests.broker.test_sessions import Ensemble

T = TypeVar("T")


class UnsteadySession(MemorySession):
    """Reports every request to its server."""

    async def _ask(self, request: Callable[[], T]) -> T:
        self._server.asked(self)  # type: ignore[attr-defined]
        return await super()._ask(request)


class Unsteady(MemoryZooKeeper):
    """Fails once: with the request of this number."""

    def __init__(self, failing: int, how: str) -> None:
        super().__init__()
        self.requests = 0
        self.sessions = 0
        self.failing = failing
        self._how = how

    async def connect(self, session_timeout_ms: int = 18000) -> MemorySession:
        self.sessions += 1
        session = UnsteadySession(self, self.sessions, session_timeout_ms)
        self._sessions[self.sessions] = session
        return session

    def asked(self, session: MemorySession) -> None:
        self.requests += 1
        if self.requests == self.failing:
            asyncio.get_running_loop().call_soon(self._fail, session)

    def _fail(self, session: MemorySession) -> None:
        if self._how == "expired":
            self.expire(session)
        else:
            session.lose_connection(carry_out=self._how == "answer lost")
            session.reconnect()


def at_home(zookeeper: MemoryZooKeeper, node: Node) -> bool:
    """Whether the node is registered under its session and leads the cluster."""
    znode = zookeeper.tree.nodes.get("/brokers/ids/1")
    registered = None if znode is None else znode.stat()
    return (
        registered is not None
        and registered.ephemeral_owner == node.session.session_id
        and registered.czxid == node.services.fence.broker_epoch
        and node.controller is not None
        and node.controller.active
    )


@pytest.mark.parametrize("how", ["expired", "request lost", "answer lost"])
async def test_start_continues_after_session_loss_at_any_step(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.broker.node.session_renewal.RENEWAL_PAUSE_S", 0.001)

    async def start(failing: int) -> Unsteady:
        cluster = Cluster(1, seed=failing)
        zookeeper = cluster.zookeeper = Unsteady(failing, how)
        async with asyncio.timeout(60):
            await cluster.start()
            while not at_home(zookeeper, cluster.nodes[1]):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        zookeeper.failing = 0
        await cluster.stop()
        return zookeeper

    needed = (await start(0)).requests
    assert needed > 20
    renewed = 0
    for failing in range(1, needed + 1):
        renewed += (await start(failing)).sessions - 1
    assert renewed > needed / 3


@pytest.mark.zookeeper
async def test_start_waits_for_a_stalled_zookeeper() -> None:
    stalls = asyncio.Event()

    class StallLog(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "ZooKeeper does not respond" in record.getMessage():
                stalls.set()

    log = logging.getLogger("anabranch.broker.node.session_renewal")
    log.addHandler(handler := StallLog())
    zookeeper = LocalZooKeeper()
    await zookeeper.start()
    cluster = Cluster(1, properties={"zookeeper.session.timeout.ms": "1000"})
    cluster.zookeeper = Ensemble(zookeeper.hosts)  # type: ignore[assignment]
    try:
        assert zookeeper.pid is not None
        os.kill(zookeeper.pid, signal.SIGSTOP)
        try:
            starting = asyncio.ensure_future(cluster.start())
            async with asyncio.timeout(60):
                await stalls.wait()
            assert not starting.done()
        finally:
            os.kill(zookeeper.pid, signal.SIGCONT)
        async with asyncio.timeout(60):
            await starting
        await cluster.stop()
    finally:
        log.removeHandler(handler)
        await zookeeper.stop()


async def test_start_without_zookeeper_fails() -> None:
    cluster = Cluster(1, properties={"zookeeper.session.timeout.ms": "300"})
    cluster.zookeeper = Ensemble("127.0.0.1:1")  # type: ignore[assignment]
    with pytest.raises(NoServerListens, match=r"no ZooKeeper answered at 127\.0\.0\.1:1"):
        await cluster.start()


async def test_failed_start_releases_port_and_tasks() -> None:
    """Another node can start at its port, and its tasks have ended. The second node has the first one's id, and gives
    up.
    """
    async with Cluster(1, properties={"zookeeper.session.timeout.ms": "300"}) as cluster:
        files = MemoryFiles()
        double = Node(
            dataclasses.replace(cluster.nodes[1].settings, port=0),
            connect=lambda: cluster.zookeeper.connect(300),
            files=files,
            rng=random.Random(1),
            clock_ms=lambda: 0,
        )
        before = asyncio.all_tasks()
        with pytest.raises(DuplicateBroker, match="broker id 1 is in use"):
            await double.start()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", double.port)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before
        files.lock()  # nor does it keep the directory
