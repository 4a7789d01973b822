"""Callbacks that run as a connection's task while it waits."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from anabranch.broker.network.serving_task import ServingTask
from tests.broker.serving import until

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")


class Served:
    """A task that notes how each of its waits ended."""

    def __init__(self) -> None:
        self.serving = ServingTask()
        self.ends: list[str] = []

    async def serve(self) -> None:
        PLACE.set("in the task")
        while True:
            try:
                await self.serving.wait()
            except ValueError as error:
                self.ends.append(str(error))
            else:
                self.ends.append("woken")

    async def start(self) -> asyncio.Task[None]:
        """Start the task, and return it once it waits."""
        self.serving.start(asyncio.get_running_loop(), self.serve())
        await self.waits()
        assert self.serving.task is not None
        return self.serving.task

    async def waits(self) -> None:
        await until(lambda: self.serving.wakeup is not None and not self.serving.wakeup.done())

    async def process(self, result: bool | Exception) -> tuple[bool, asyncio.Task[None] | None, str]:
        """Process something with this result in a callback of the loop: what is returned, as which task, where."""
        found: asyncio.Future[tuple[bool, asyncio.Task[None] | None, str]] = asyncio.get_running_loop().create_future()
        seen: list[tuple[asyncio.Task[None] | None, str]] = []

        def process() -> bool:
            seen.append((asyncio.current_task(), PLACE.get()))
            if isinstance(result, Exception):
                raise result
            return result

        asyncio.get_running_loop().call_soon(lambda: found.set_result((self.serving.process(process), *seen[0])))
        return await found


@pytest.mark.parametrize("more", [True, False])
async def test_callback_runs_as_the_waiting_task_and_in_its_context(more: bool) -> None:
    one = Served()
    task = await one.start()
    wakeup = one.serving.wakeup
    assert await one.process(more) == (more, task, "in the task")
    assert one.serving.wakeup is wakeup and not one.ends, "the task still waits"
    assert asyncio.current_task() is not task
    task.cancel()


async def test_exception_of_a_callback_is_raised_in_the_task() -> None:
    one = Served()
    task = await one.start()
    assert await one.process(ValueError("oops")) == (False, task, "in the task")
    await until(lambda: one.ends == ["oops"])
    await one.waits()
    one.serving.wake()
    one.serving.wake()
    await until(lambda: one.ends == ["oops", "woken"])
    task.cancel()


async def test_callback_within_another_task_wakes_the_task_instead() -> None:
    one, ran = Served(), list[bool]()
    task = await one.start()

    def process() -> bool:
        ran.append(True)
        return True

    assert not one.serving.process(process) and not ran
    await until(lambda: one.ends == ["woken"])
    task.cancel()


async def test_result_does_not_count_once_the_callback_has_woken_the_task() -> None:
    """As when the connection is lost while a request is processed: the task ends, and nothing may continue it."""
    one, found = Served(), list[bool]()
    task = await one.start()

    def process() -> bool:
        one.serving.wake()
        return True

    asyncio.get_running_loop().call_soon(lambda: found.append(one.serving.process(process)))
    await until(lambda: bool(found))
    assert found == [False]
    await until(lambda: one.ends == ["woken"])
    task.cancel()


async def test_callback_runs_as_the_task_whatever_it_waits_for() -> None:
    serving, go = ServingTask(), asyncio.Event()

    async def serve() -> None:
        PLACE.set("in the task")
        await go.wait()

    serving.start(asyncio.get_running_loop(), serve())
    await asyncio.sleep(0)
    seen: list[tuple[asyncio.Task[None] | None, str]] = []
    run = serving.run
    asyncio.get_running_loop().call_soon(run, lambda: seen.append((asyncio.current_task(), PLACE.get())))
    await until(lambda: bool(seen))
    assert seen == [(serving.task, "in the task")]
    go.set()
    assert serving.task is not None
    await serving.task
