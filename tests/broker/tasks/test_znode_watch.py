"""The final content of znodes is read, whatever events or errors occur."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from anabranch.broker.tasks import znode_watch
from anabranch.broker.tasks.supervised_task import FatalNodeError
from anabranch.broker.tasks.znode_watch import ZnodeWatch
from anabranch.controller.zk.session import ConnectionLoss, SessionExpired


class Reader:
    """Counts its reads, with given results."""

    def __init__(self) -> None:
        self.reads: asyncio.Queue[int] = asyncio.Queue()
        self.acts: list[Callable[[], None]] = []
        self.failures: list[FatalNodeError] = []
        self.watch = ZnodeWatch("znodes", "reader", self.read)
        self._count = 0

    async def read(self) -> None:
        self._count += 1
        self.reads.put_nowait(self._count)
        if self.acts:
            self.acts.pop(0)()


@asynccontextmanager
async def reading(*acts: Callable[[], None]) -> AsyncIterator[Reader]:
    reader = Reader()
    reader.acts += acts
    reader.watch.start(reader.failures.append)
    try:
        async with asyncio.timeout(30):
            yield reader
    finally:
        await reader.watch.stop()


def raising(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


async def test_an_event_during_a_read_causes_another_read() -> None:
    async with reading() as reader:
        reader.acts.append(reader.watch.on_change)
        reader.watch.on_change()
        assert [await reader.reads.get(), await reader.reads.get()] == [1, 2]


async def test_a_read_is_repeated_after_an_error_of_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(znode_watch, "RETRY_S", 0.0)
    async with reading(raising(ConnectionLoss("/x"))) as reader:
        reader.watch.on_change()
        assert [await reader.reads.get(), await reader.reads.get()] == [1, 2]
        assert reader.failures == []


async def test_watch_ends_with_its_session_and_restarts_with_the_next() -> None:
    async with reading(raising(SessionExpired("/x"))) as reader:
        task = reader.watch._task
        assert task is not None
        reader.watch.on_change()
        await task
        reader.watch.on_change()
        await reader.watch.stop()
        reader.watch.start(reader.failures.append)
        assert reader.reads.get_nowait() == 1
        reader.watch.on_change()
        assert await reader.reads.get() == 2


async def test_events_before_a_stop_are_dropped() -> None:
    reader = Reader()
    reader.watch.on_change()
    await reader.watch.stop()
    reader.watch.start(reader.failures.append)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert reader.reads.empty()
    await reader.watch.stop()


async def test_unexpected_exception_in_a_read_is_reported() -> None:
    async with reading(raising(ValueError("oops"))) as reader:
        task = reader.watch._task
        assert task is not None
        reader.watch.on_change()
        await asyncio.wait([task])
        assert [repr(bug.__cause__) for bug in reader.failures] == ["ValueError('oops')"]
