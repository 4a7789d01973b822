"""A coroutine that was started eagerly continues as if it had been awaited from the start."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from typing import Any

import pytest

from anabranch.broker.network.eager_coroutine import EagerCoroutine, start_eagerly
from anabranch.broker.tasks.replication_future import ReplicationFuture


class Broken(Exception):
    """What a future may end with."""


class Large:
    """What a future holds."""


async def test_coroutine_without_wait_returns_its_result() -> None:
    async def work() -> int:
        return 7

    assert start_eagerly(work()) == 7


def test_exception_before_the_first_wait_is_raised() -> None:
    async def work() -> None:
        raise ValueError("oops")

    with pytest.raises(ValueError, match="oops"):
        start_eagerly(work())


async def test_suspended_coroutine_is_awaited_to_its_result() -> None:
    futures = [asyncio.get_running_loop().create_future() for _ in range(3)]

    async def work() -> list[int]:
        got = []
        for one in futures:
            got.append(await one)
            await asyncio.sleep(0)
        return got

    started = start_eagerly(work())
    assert type(started) is EagerCoroutine
    futures[0].set_result(0)  # before anybody waits for it
    waiting = asyncio.create_task(_await(started))
    for number in (1, 2):
        await asyncio.sleep(0)
        futures[number].set_result(number)
    assert await waiting == [0, 1, 2]


async def test_completed_wait_is_stepped_without_a_task() -> None:
    """The coroutine may move to a task between any two steps, also during a wait."""
    loop = asyncio.get_running_loop()
    settled: list[str] = []

    async def work(futures: list[asyncio.Future[Any]]) -> list[Any]:
        return [await one for one in futures]

    for steps in range(4):
        futures: list[asyncio.Future[Any]] = [
            ReplicationFuture(loop=loop),
            loop.create_future(),
            ReplicationFuture(loop=loop),
        ]
        started = start_eagerly(work(futures), lambda: settled.append("settles"))
        outcome = started
        for number in range(steps):
            assert outcome is started and started.awaited is futures[number]
            assert started.awaits_replication is (number != 1) and started.may_suspend
            futures[number].set_result(number)
            outcome = started.step()
        if steps < len(futures):
            waiting = asyncio.create_task(_await(started))
            for number in range(steps, len(futures)):
                await asyncio.sleep(0)
                futures[number].set_result(number)
            outcome = await waiting
        assert outcome == [0, 1, 2]
        assert settled == ["settles"], "told once of the wait that comes later, whoever takes the steps"
        settled.clear()


@pytest.mark.parametrize("taken_by", ["a task", "whoever knows that its wait is over"])
async def test_exceptions_pass_into_and_out_of_the_coroutine(taken_by: str) -> None:
    future = asyncio.get_running_loop().create_future()

    async def work() -> None:
        with pytest.raises(OSError, match="disk"):
            await future
        raise ValueError("and so")

    started = start_eagerly(work())
    future.set_exception(OSError("disk"))
    with pytest.raises(ValueError, match="and so"):
        if taken_by == "a task":
            await started
        else:
            started.step()


async def test_cancellation_reaches_the_coroutine() -> None:
    seen = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.create_task(_await(start_eagerly(work())))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_future_is_awaited_by_several_coroutines() -> None:
    future = asyncio.get_running_loop().create_future()

    async def work() -> Any:
        return await future

    first, second = start_eagerly(work()), start_eagerly(work())
    others = [asyncio.create_task(work()), asyncio.create_task(_await(first)), asyncio.create_task(_await(second))]
    await asyncio.sleep(0)
    future.set_result(7)
    assert await asyncio.gather(*others) == [7, 7, 7]


@pytest.mark.parametrize("with_a_future", [True, False])
async def test_cancellation_before_the_first_await_reaches_the_coroutine(with_a_future: bool) -> None:
    inner = asyncio.create_task(asyncio.Event().wait())
    seen = []

    async def work() -> int:
        try:
            await (inner if with_a_future else asyncio.sleep(0))
        except asyncio.CancelledError as error:
            seen.append(error.args)
            await asyncio.sleep(0)
        return 7

    started = start_eagerly(work())
    started.cancel(asyncio.CancelledError("early"))
    assert await started == 7
    assert seen == [() if with_a_future else ("early",)]
    assert inner.cancelled() is with_a_future
    inner.cancel()


async def test_result_of_a_wait_is_released_while_the_coroutine_continues() -> None:
    future = asyncio.get_running_loop().create_future()
    large = Large()
    alive = weakref.ref(large)
    went_on, end = asyncio.Event(), asyncio.Event()

    async def work(waits_for: list[asyncio.Future[Large]]) -> None:
        await waits_for.pop()
        went_on.set()
        await end.wait()

    task = asyncio.create_task(_await(start_eagerly(work([future]))))
    future.set_result(large)
    del future, large
    await went_on.wait()
    gc.collect()
    assert alive() is None
    end.set()
    await task


async def test_handled_exception_is_released_while_the_coroutine_continues() -> None:
    future = asyncio.get_running_loop().create_future()
    error = Broken("disk")
    alive = weakref.ref(error)

    async def work(waits_for: list[asyncio.Future[None]]) -> None:
        with contextlib.suppress(Broken):
            await waits_for.pop()

    task = asyncio.create_task(_await(start_eagerly(work([future]))))
    future.set_exception(error)
    del future, error
    gc.disable()  # what is held by itself alone is held, too
    try:
        await task
        assert alive() is None
    finally:
        gc.enable()


async def _await(started: EagerCoroutine) -> object:
    return await started
