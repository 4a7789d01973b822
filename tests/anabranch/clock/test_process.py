"""A frozen process does nothing, and handles everything after it is resumed; others continue."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from anabranch.clock.cluster_clock import CLOCK, ClusterClock
from anabranch.clock.loop import ClockLoop
from anabranch.clock.process import PROCESS, Process, outside


def on_clock(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    """Run a test on a clock, and thaw what it leaves frozen."""

    @pytest.mark.asyncio(loop_factories=["clock"])
    @functools.wraps(test)
    async def on_its_clock(**fixtures: Any) -> None:
        clock, loop = ClusterClock.new(), asyncio.get_running_loop()
        assert clock is not None and isinstance(loop, ClockLoop)
        try:
            async with asyncio.timeout(60):
                await clock.run(test(**fixtures))
        finally:
            for process in list(loop.ice.frozen):
                process.thaw()

    return on_its_clock


def made() -> Process:
    process = Process.new()
    assert process is not None
    return process


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@on_clock
async def test_frozen_tasks_and_timers_continue_in_order() -> None:
    loop, process, seen = asyncio.get_running_loop(), made(), []

    async def count() -> None:
        for number in range(1000):
            seen.append(number)
            await asyncio.sleep(0)

    working = loop.create_task(count(), context=process.context)
    await turns()
    process.freeze()
    process.freeze()
    loop.call_later(0.01, seen.append, "timer", context=process.context)
    loop.call_soon(seen.append, "soon", context=process.context)
    before = list(seen)
    await asyncio.sleep(0.05)
    assert process.frozen and seen == before and not working.done()
    process.thaw()
    process.thaw()
    await working
    assert not process.frozen
    assert [one for one in seen if isinstance(one, str)] == ["soon", "timer"]
    assert [one for one in seen if isinstance(one, int)] == list(range(1000))


@on_clock
async def test_freeze_takes_effect_within_one_loop_iteration() -> None:
    loop, process, seen = asyncio.get_running_loop(), made(), []
    loop.call_soon(seen.append, "before", context=process.context)
    loop.call_soon(process.freeze)
    loop.call_soon(seen.append, "behind", context=process.context)
    loop.call_soon(seen.append, "another's")
    await turns()
    assert seen == ["before", "another's"]
    process.thaw()
    await turns()
    assert seen == ["before", "another's", "behind"]


class Echo(asyncio.Protocol):
    def __init__(self) -> None:
        self.got = b""
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.transport.write(data)  # type: ignore[attr-defined]

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)


@on_clock
async def test_sockets_of_frozen_process_stay_open_and_are_read_after_thaw() -> None:
    loop, process = asyncio.get_running_loop(), made()
    server = await loop.create_task(loop.create_server(Echo, "127.0.0.1", 0), context=process.context)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"a")
    assert await reader.readexactly(1) == b"a"
    process.freeze()
    writer.write(b"b")
    late_reader, late_writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    late_writer.write(b"c")
    used_s, spent = loop.time(), asyncio.create_task(reader.read(1))
    turned = 0
    while loop.time() < used_s + 0.2:
        await asyncio.sleep(0.02)
        turned += 1
    assert turned < 15 and not spent.done(), "nobody spins, and nothing is answered"
    process.thaw()
    assert await spent == b"b"
    assert await late_reader.readexactly(1) == b"c"
    for one in (writer, late_writer):
        one.close()
    server.close()


@on_clock
async def test_sockets_of_dead_process_are_closed_also_while_frozen() -> None:
    loop, process = asyncio.get_running_loop(), made()
    server = await loop.create_task(loop.create_server(Echo, "127.0.0.1", 0), context=process.context)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    other_process = made()
    other_server = await loop.create_task(loop.create_server(Echo, "127.0.0.1", 0), context=other_process.context)
    other_reader, other_writer = await asyncio.open_connection(*other_server.sockets[0].getsockname())
    await turns()
    process.freeze()
    writer.write(b"b")
    await asyncio.sleep(0.02)  # it is put aside meanwhile
    process.drop_sockets()
    process.thaw()
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    other_writer.write(b"d")
    assert await other_reader.readexactly(1) == b"d"
    for one in (writer, other_writer):
        one.close()
    server.close()
    other_server.close()


@on_clock
async def test_clock_advances_past_a_frozen_process() -> None:
    loop, process, clock, seen = asyncio.get_running_loop(), made(), CLOCK.get(), []
    assert clock is not None
    loop.call_later(5, seen.append, "frozen", context=process.context)
    loop.call_later(7, seen.append, "running")
    process.freeze()
    advancing = contextvars.copy_context()
    advancing.run(CLOCK.set, None)
    await loop.create_task(clock.advance(10), context=advancing)
    assert seen == ["running"]
    process.thaw()
    await turns()
    assert seen == ["running", "frozen"]


async def test_other_event_loops_have_no_processes() -> None:
    assert Process.new() is None
    assert outside().get(PROCESS) is None
