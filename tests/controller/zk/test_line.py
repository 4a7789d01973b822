"""A slow connection to the in-memory ZooKeeper: both directions are late, and in order."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper
from anabranch.controller.zk.session import ConnectionLoss, SessionExpired, Stat, WatchEvent


async def test_slow_connection_delays_requests_and_responses_and_keeps_their_order() -> None:
    server = MemoryZooKeeper()
    slow, quick = await server.connect(), await server.connect()
    await quick.create("/w", b"old")
    seen: list[object] = []
    await slow.get("/w", seen.append)
    delay_s = 0.02
    slow.slow_down(delay_s)
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


async def bring(end: str, server: MemoryZooKeeper, zk: MemorySession) -> None:
    match end:
        case "resumed":
            zk.slow_down(0)
        case "suspended":
            zk.lose_connection()
        case "expired":
            server.expire(zk)
        case _:
            await zk.close()


@pytest.mark.parametrize("end", ["resumed", "suspended", "expired", "closed"])
async def test_what_is_under_way_on_a_slow_connection_arrives_at_its_end(end: str) -> None:
    server = MemoryZooKeeper()
    zk, writer = await server.connect(), await server.connect()
    await writer.create("/w")
    seen: list[WatchEvent] = []
    await zk.get("/w", seen.append)
    zk.slow_down(3600.0)
    await writer.set("/w", b"x")
    asking = asyncio.create_task(zk.exists("/w"))
    await asyncio.sleep(0)
    assert seen == [] and not asking.done()
    async with asyncio.timeout(10):
        await bring(end, server, zk)
        (outcome,) = await asyncio.gather(asking, return_exceptions=True)
    expected = {"suspended": ConnectionLoss, "expired": ConnectionLoss, "closed": SessionExpired}
    assert isinstance(outcome, expected.get(end, Stat))
    assert [one.kind for one in seen] == ([] if end == "closed" else ["changed"])


@pytest.mark.parametrize("end", ["resumed", "suspended", "expired", "closed"])
async def test_response_under_way_on_a_slow_connection_arrives_at_its_end(end: str) -> None:
    server = MemoryZooKeeper()
    zk = await server.connect()
    asking = asyncio.create_task(zk.exists("/"))
    await asyncio.sleep(0)  # the request is sent
    zk.slow_down(3600.0)
    await asyncio.sleep(0)  # it is executed
    assert not asking.done()
    async with asyncio.timeout(10):
        await bring(end, server, zk)
        assert isinstance(await asking, Stat)
