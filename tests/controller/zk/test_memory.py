"""The in-memory ZooKeeper: races within a loop iteration, and bugs that must not block callers.

What it shares with the real one is in tests/contracts/test_zk_session.py.
"""

from __future__ import annotations

import asyncio

import pytest

from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.controller.zk.session import ConnectionLoss, SessionEvent, SessionExpired, Stat, WatchEvent


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
    server.suspend(zk)
    with pytest.raises(ConnectionLoss):
        await task
    server.resume(zk)
    assert await zk.exists("/a") is None


async def test_early_reconnection_prevents_expiry() -> None:
    server = MemoryZooKeeper()
    zk = await server.connect(session_timeout_ms=20)
    await zk.create("/e", ephemeral=True)
    events: list[SessionEvent] = []
    zk.on_session(events.append)
    server.suspend(zk)
    server.resume(zk)
    await asyncio.sleep(0.04)  # twice the timeout of a session that stayed cut off
    assert await zk.exists("/e") is not None
    assert events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]


async def test_requests_pending_at_expiry_fail() -> None:
    server = MemoryZooKeeper()
    zk = await server.connect()
    server.suspend(zk)
    waiting = asyncio.create_task(zk.get("/"))
    await asyncio.sleep(0)
    server.expire(zk)
    server.resume(zk)
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
    server.freeze(zk)
    async with asyncio.timeout(10):
        while server.holds(zk):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert seen == []
    server.thaw(zk)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == [WatchEvent(None, "lost")]
    assert events[-1] is SessionEvent.EXPIRED


async def test_slow_connection_delays_requests_and_responses_and_keeps_their_order() -> None:
    server = MemoryZooKeeper()
    slow, quick = await server.connect(), await server.connect()
    await quick.create("/w", b"old")
    seen: list[object] = []
    await slow.get("/w", seen.append)
    delay_s = 0.02
    server.delay(slow, delay_s)
    assert slow.delay_s == delay_s
    begun = asyncio.get_running_loop().time()
    reads = [asyncio.create_task(slow.get("/w")) for _ in range(3)]
    await asyncio.sleep(0)
    await quick.set("/w", b"new")
    for read in reads:
        data, _ = await read
        seen.append(data)
    assert [one.kind if isinstance(one, WatchEvent) else one for one in seen] == ["changed", *[b"new"] * 3]
    assert asyncio.get_running_loop().time() - begun >= 2 * delay_s


@pytest.mark.parametrize("end", ["resumed", "suspended", "expired", "closed"])
async def test_what_is_under_way_on_a_slow_connection_arrives_at_its_end(end: str) -> None:
    server = MemoryZooKeeper()
    zk, writer = await server.connect(), await server.connect()
    await writer.create("/w")
    seen: list[WatchEvent] = []
    await zk.get("/w", seen.append)
    server.delay(zk, 3600.0)
    await writer.set("/w", b"x")
    asking = asyncio.create_task(zk.exists("/w"))
    await asyncio.sleep(0)
    assert seen == [] and not asking.done()
    async with asyncio.timeout(10):
        if end == "closed":
            await zk.close()
        else:
            {"resumed": lambda one: server.delay(one, 0), "suspended": server.suspend, "expired": server.expire}[end](
                zk
            )
        (outcome,) = await asyncio.gather(asking, return_exceptions=True)
    expected = {"suspended": ConnectionLoss, "expired": ConnectionLoss, "closed": SessionExpired}
    assert isinstance(outcome, expected.get(end, Stat))
    assert [one.kind for one in seen] == ([] if end == "closed" else ["changed"])
