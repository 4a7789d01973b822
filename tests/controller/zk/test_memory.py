"""The in-memory ZooKeeper: races within a loop iteration, and bugs that must not block callers.

What it shares with the real one is in tests/contracts/test_zk_session.py.
"""

from __future__ import annotations

import asyncio

import pytest

from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.controller.zk.session import ConnectionLoss, SessionEvent, SessionExpired, WatchEvent


async def test_watch_in_flight_is_not_delivered_after_close() -> None:
    server = MemoryZooKeeper()
    zk, writer = await server.connect(), await server.connect()
    await writer.create("/w")
    seen: list[WatchEvent] = []
    await zk.get("/w", seen.append)
    writing = asyncio.create_task(writer.set("/w", b"x"))
    await asyncio.sleep(0)  # the request is sent
    await asyncio.sleep(0)  # it is carried out, and the watch is on its way
    await zk.close()
    await writing
    assert seen == []


async def test_request_yields_to_event_loop_before_it_completes() -> None:
    zk = await MemoryZooKeeper().connect()
    task = asyncio.create_task(zk.create("/a"))
    await asyncio.sleep(0)
    assert not task.done()
    assert await task == "/a"


async def test_suspension_loses_pending_request() -> None:
    server = MemoryZooKeeper()
    zk = await server.connect()
    task = asyncio.create_task(zk.create("/a"))
    await asyncio.sleep(0)
    zk.lose_connection()
    with pytest.raises(ConnectionLoss):
        await task
    zk.reconnect()
    assert await zk.exists("/a") is None


async def test_early_reconnection_prevents_expiry() -> None:
    server = MemoryZooKeeper()
    zk = await server.connect(session_timeout_ms=20)
    await zk.create("/e", ephemeral=True)
    events: list[SessionEvent] = []
    zk.on_session(events.append)
    zk.lose_connection()
    zk.reconnect()
    await asyncio.sleep(0.04)  # twice the timeout of a session that stayed cut off
    assert await zk.exists("/e") is not None
    assert events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]


async def test_requests_pending_at_expiry_fail() -> None:
    server = MemoryZooKeeper()
    zk = await server.connect()
    zk.lose_connection()
    waiting = asyncio.create_task(zk.get("/"))
    await asyncio.sleep(0)
    server.expire(zk)
    zk.reconnect()
    with pytest.raises(SessionExpired):
        await waiting


async def test_exception_in_a_request_reaches_its_caller() -> None:
    zk = await MemoryZooKeeper().connect()
    with pytest.raises(TypeError, match="unhashable"):
        await zk.get("/", [].append.__self__)  # type: ignore[arg-type]  # not callable, not even hashable


async def test_stalled_client_gets_its_watches_when_it_continues() -> None:
    server = MemoryZooKeeper()
    zk = await server.connect(session_timeout_ms=5)
    seen: list[WatchEvent] = []
    events: list[SessionEvent] = []
    zk.on_session(events.append)
    await zk.get("/", seen.append)
    zk.stall()
    async with asyncio.timeout(10):
        while server.holds(zk):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert seen == []
    zk.unstall()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == [WatchEvent(None, "lost")]
    assert events[-1] is SessionEvent.EXPIRED
