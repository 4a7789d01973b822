"""The simulated loop, disk and ZooKeeper behave like real ones, and fail on demand."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.controller.zk.session import ConnectionLoss, SessionExpired
from tests.sim import loop
from tests.sim.files import DiskView, SimDisk
from tests.sim.loop import Process, ProcessKilled, SimulationStuck
from tests.sim.world import World, simulated

# --- the loop


@simulated
async def test_time_jumps_and_equal_timers_keep_order(world: World) -> None:
    order: list[int] = []
    for number in range(20):
        world.loop.call_at(3600.0, order.append, number)
    await asyncio.sleep(7200)
    assert order == list(range(20)), "asyncio's own heap swaps equal deadlines"
    assert world.loop.time() == 7200


def test_callbacks_keep_order_and_tasks_do_not() -> None:
    async def one(order: list[str], name: str) -> None:
        order.append(name)

    async def story(world: World) -> None:
        orders = set()
        for _ in range(20):
            callbacks: list[int] = []
            tasks: list[str] = []
            for number in range(5):
                world.loop.call_soon(callbacks.append, number)
            await asyncio.gather(*(one(tasks, str(number)) for number in range(5)))
            assert callbacks == list(range(5))
            orders.add(tuple(tasks))
        assert len(orders) > 1

    World().run(story)


def test_deadlock_and_livelock_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CALLBACKS_MAX", 1000)
    monkeypatch.setattr(loop, "TURNS_PER_INSTANT_MAX", 500)

    async def deadlock(world: World) -> None:
        await world.loop.create_future()

    async def livelock(world: World) -> None:
        while True:
            await asyncio.sleep(0)

    async def endless(world: World) -> None:
        while True:
            await asyncio.sleep(3600)

    for story, reason in ((deadlock, "no timer"), (livelock, "stands still"), (endless, "no end after 1001 callbacks")):
        with pytest.raises(SimulationStuck, match=reason):
            World().run(story)


def test_killed_process_runs_nothing_more_including_finally_clauses() -> None:
    done = []

    async def victim() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            done.append("finally")

    async def story(world: World) -> None:
        world.loop.spawn(world.client, victim())
        await asyncio.sleep(1)
        world.loop.kill(world.client)
        await asyncio.sleep(20)
        assert done == []

    World().run(story)


def test_hasty_loop_fires_timers_early_but_not_forever() -> None:
    early: list[float] = []

    async def story(world: World) -> None:
        world.loop.hasty = True
        due = world.loop.time() + 0.1
        while (left := due - world.loop.time()) > 0:
            early.append(left)
            await asyncio.sleep(left)

    World().run(story)
    assert early[0] == 0.1
    assert 0 < early[1] < 1e-15, "it rang, and it was not time yet"


def test_frozen_process_continues_where_it_stopped() -> None:
    ticks: list[float] = []

    async def victim(world: World) -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(world.loop.time())

    async def story(world: World) -> None:
        world.loop.spawn(world.client, victim(world))
        await asyncio.sleep(2.5)
        world.loop.freeze(world.client)
        await asyncio.sleep(10)
        world.loop.thaw(world.client)
        await asyncio.sleep(1.2)

    World().run(story)
    assert ticks == [1.0, 2.0, 12.5, 13.5]


def test_unhandled_exception_fails_the_run() -> None:
    async def story(world: World) -> None:
        world.loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    world = World()
    world.loop.run(story(world))
    assert "ZeroDivisionError" in world.loop.failures[0]


@simulated
async def test_threads_are_refused(world: World) -> None:
    with pytest.raises(NotImplementedError):
        await asyncio.to_thread(print)


# --- the disk


def disk(seed: int = 1) -> tuple[SimDisk, Process, DiskView]:
    world = World(seed)
    process = Process("node")
    made = SimDisk(world.loop, world.rng, "node")
    return made, process, DiskView(made, process)


def test_power_loss_discards_only_unflushed_bytes() -> None:
    lengths = set()
    for seed in range(30):
        machine, _, files = disk(seed)
        file = files.open("log")
        file.append(b"safe")
        file.flush()
        file.append(b"gone?" * 20)
        machine.lose_power()
        left = files.open("log").read(0, 1000)
        assert left.startswith(b"safe")
        lengths.add(len(left))
    assert len(lengths) > 5


def test_volumes_of_a_disk_hold_their_own_files_and_lose_power_together() -> None:
    lengths = set()
    for seed in range(20):
        machine, process, files = disk(seed)
        other = DiskView(machine, process, "/data-2")
        file = other.open("log")
        file.append(b"gone?" * 20)
        assert (files.exists("log"), other.exists("log")) == (False, True)
        machine.lose_power()
        lengths.add(other.open("log").size_bytes)
    assert len(lengths) > 5


def test_lying_disk_loses_flushed_bytes() -> None:
    left = set()
    for seed in range(20):
        machine, _, files = disk(seed)
        machine.lying = True
        file = files.open("log")
        file.append(b"x" * 100)
        file.flush()
        machine.lose_power()
        left.add(files.open("log").size_bytes)
        assert machine.fired["flush that did nothing"] == 1
    assert min(left) < 100


def test_full_disk_refuses_writes() -> None:
    machine, _, files = disk()
    file = files.open("log")
    machine.full = True
    with pytest.raises(OSError, match="no space"):
        file.append(b"x")
    with pytest.raises(OSError, match="no space"):
        files.write_file("checkpoint", b"x")
    assert file.size_bytes == 0


def test_dead_process_does_not_write_to_its_disk() -> None:
    machine, process, files = disk()
    file = files.open("log")

    def die() -> None:
        process.alive = False

    machine.die_in_append = die
    with pytest.raises(ProcessKilled):
        file.append(b"torn write")
    for use in (lambda: file.append(b"x"), lambda: files.names(""), lambda: files.write_file("a", b"")):
        with pytest.raises(ProcessKilled):
            use()
    content = machine.directories[""]["log"]
    assert content is not None
    assert b"torn write".startswith(bytes(content.content))


# --- ZooKeeper


@simulated
async def test_delayed_watch_still_precedes_new_data(world: World) -> None:
    world.zookeeper.watch_delay_ms = 1000
    events: list[str] = []

    async def watcher() -> None:
        session = await world.zookeeper.connect(60000)
        await session.create("/a", b"old")
        await session.get("/a", lambda event: events.append("watch"))
        while (await session.get("/a"))[0] == b"old":
            await asyncio.sleep(0.01)
        events.append("data")

    async def writer() -> None:
        session = await world.zookeeper.connect(60000)
        await asyncio.sleep(0.5)
        await session.set("/a", b"new")

    task = world.loop.spawn(world.client, watcher())
    world.loop.spawn(world.server, writer())
    await task
    assert events == ["watch", "data"]


@simulated
async def test_executed_request_may_lose_its_response(world: World) -> None:
    async def create() -> str:
        session = await world.zookeeper.connect(60000)
        try:
            await session.create("/a")
        except ConnectionLoss:
            return "lost"
        return "answered"

    outcomes = []
    for _ in range(40):
        if world.zookeeper.tree.nodes.pop("/a", None) is not None:
            world.zookeeper.tree.nodes["/"].children.remove("a")
        task = world.loop.spawn(world.client, create())
        await asyncio.sleep(0.002 + world.rng.random() * 0.006)
        world.zookeeper.cut("client")
        await asyncio.sleep(0.1)
        world.zookeeper.mend("client")
        if task.done():
            outcomes.append((task.result(), "/a" in world.zookeeper.tree.nodes))
        else:
            task.cancel()
    assert ("lost", True) in outcomes
    assert ("answered", True) in outcomes


@simulated
async def test_thawed_client_learns_of_expired_session_and_lost_watches(world: World) -> None:
    received: list[str] = []

    async def client() -> None:
        session = await world.zookeeper.connect(1000)
        session.on_session(lambda event: received.append(event.value))
        await session.create("/lock", ephemeral=True)
        await session.exists("/other", lambda event: received.append(event.kind))
        await asyncio.sleep(0.5)  # frozen here
        with pytest.raises(SessionExpired):
            while True:
                await session.exists("/lock")
                await asyncio.sleep(0.01)

    task = world.loop.spawn(world.client, client())
    await asyncio.sleep(0.1)
    world.loop.freeze(world.client)
    world.zookeeper.host_froze(world.client)
    await asyncio.sleep(2)
    assert "/lock" not in world.zookeeper.tree.nodes
    assert received == []
    world.zookeeper.host_thawed(world.client)
    world.loop.thaw(world.client)
    await task
    assert sorted(received) == ["expired", "lost", "suspended"]


@simulated
async def test_session_of_dead_client_expires_after_its_timeout(world: World) -> None:
    async def client() -> None:
        session = await world.zookeeper.connect(1000)
        await session.create("/lock", ephemeral=True)

    await world.loop.spawn(world.client, client())
    world.loop.kill(world.client)
    world.zookeeper.host_died(world.client)
    await asyncio.sleep(0.9)
    assert "/lock" in world.zookeeper.tree.nodes
    await asyncio.sleep(0.2)
    assert "/lock" not in world.zookeeper.tree.nodes
