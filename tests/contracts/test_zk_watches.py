"""Watches of both ZooKeepers fire equally: once, in order, before the data.

Method: every test runs twice, in the two worlds of `zk_worlds`.
"""

from __future__ import annotations

import asyncio

from anabranch.controller.zk.session import (
    NoNode,
    WatchEvent,
)
from tests.contracts.zk_worlds import (
    Seen,
    World,
    answer_of,
    until_visible,
)


async def test_data_watch_fires_once(world: World) -> None:
    zk, writer = await world.connect(), await world.connect()
    await writer.create("/d", b"0")
    seen = Seen[WatchEvent]()
    await zk.get("/d", seen)
    await writer.set("/d", b"1")
    await writer.set("/d", b"2")
    await seen.until(WatchEvent("/d", "changed"))
    await writer.create("/d/child")
    await until_visible(zk, "/d/child")  # whatever was to come has come before this answer
    assert seen == [WatchEvent("/d", "changed")]
    again = Seen[WatchEvent]()
    await zk.get("/d", again)
    await writer.delete("/d/child")
    await writer.delete("/d")
    await again.until(WatchEvent("/d", "deleted"))
    assert again == [WatchEvent("/d", "deleted")]


async def test_children_watch_fires_on_creation_and_deletion_but_not_on_data(world: World) -> None:
    zk, writer = await world.connect(), await world.connect()
    await writer.create("/p")
    births, deaths, end = Seen[WatchEvent](), Seen[WatchEvent](), Seen[WatchEvent]()
    await zk.children("/p", births)
    await writer.set("/p", b"x")
    await writer.create("/p/c")
    await births.until(WatchEvent("/p", "children"))
    assert births == [WatchEvent("/p", "children")]
    await zk.children("/p", deaths)
    await writer.set("/p/c", b"x")
    await writer.delete("/p/c")
    await deaths.until(WatchEvent("/p", "children"))
    await zk.children("/p", end)
    await writer.delete("/p")
    await end.until(WatchEvent("/p", "deleted"))
    assert (len(births), len(deaths), len(end)) == (1, 1, 1)


async def test_exists_watch_fires_when_znode_is_created(world: World) -> None:
    zk, writer = await world.connect(), await world.connect()
    born, changed, gone = Seen[WatchEvent](), Seen[WatchEvent](), Seen[WatchEvent]()
    assert await zk.exists("/e", born) is None
    await writer.create("/e")
    await born.until(WatchEvent("/e", "created"))
    assert await zk.exists("/e", changed) is not None
    await writer.set("/e", b"x")
    await changed.until(WatchEvent("/e", "changed"))
    await zk.exists("/e", gone)
    await writer.delete("/e")
    await gone.until(WatchEvent("/e", "deleted"))
    assert (len(born), len(changed), len(gone)) == (1, 1, 1)


async def test_failed_read_sets_no_watch(world: World) -> None:
    zk, writer = await world.connect(), await world.connect()
    seen = Seen[WatchEvent]()
    assert await answer_of(zk.get("/later", seen)) is NoNode
    assert await answer_of(zk.children("/later", seen)) is NoNode
    await writer.create("/later/child", make_parents=True)
    await writer.set("/later", b"x")
    await until_visible(zk, "/later/child")
    assert seen == []


async def test_callback_registered_twice_fires_once_and_two_callbacks_both_fire(world: World) -> None:
    zk, writer = await world.connect(), await world.connect()
    await writer.create("/w")
    one, two = Seen[WatchEvent](), Seen[WatchEvent]()
    await zk.get("/w", one.__call__)
    await zk.get("/w", one.__call__)  # another bound method, but an equal one
    await zk.exists("/w", two)
    await writer.set("/w", b"x")
    await two.until(WatchEvent("/w", "changed"))
    await until_visible(zk, "/w")
    assert (one, two) == ([WatchEvent("/w", "changed")], [WatchEvent("/w", "changed")])


async def test_session_watch_fires_on_its_own_writes(world: World) -> None:
    zk = await world.connect()
    seen = Seen[WatchEvent]()
    await zk.exists("/own", seen)
    await zk.create("/own")
    assert seen == [WatchEvent("/own", "created")]  # before the answer to the write


async def test_watch_fires_before_new_data_is_readable(world: World) -> None:
    """ZooKeeper guarantees this order, and the controller's event queue needs it."""
    zk, writer = await world.connect(), await world.connect()
    await writer.create("/order", b"0")
    for round_number in range(1, 151):
        seen = Seen[WatchEvent]()
        data, _ = await zk.get("/order", seen)
        writing = asyncio.create_task(writer.set("/order", str(round_number).encode()))
        while (now := (await zk.get("/order"))[0]) == data:
            pass
        assert seen == [WatchEvent("/order", "changed")], f"round {round_number}: {now!r} overtook the watch"
        await writing


async def test_watches_fire_in_order_of_changes(world: World) -> None:
    zk, writer = await world.connect(), await world.connect()
    for name in "abc":
        await writer.create(f"/{name}")
    seen = Seen[WatchEvent]()
    for name in "abc":
        await zk.get(f"/{name}", seen)
    await asyncio.gather(*[writer.set(f"/{name}", b"x") for name in "cab"])
    await seen.until(WatchEvent("/b", "changed"))
    assert [event.path for event in seen] == ["/c", "/a", "/b"]
