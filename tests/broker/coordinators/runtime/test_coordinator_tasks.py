"""Tasks end with their owner, and one timer serves many deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from anabranch.broker.coordinators.runtime.coordinator_tasks import CoordinatorTasks, CoordinatorTimer


async def test_tasks_end_with_their_owner() -> None:
    background = CoordinatorTasks("a test")
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    background.spawn(work())
    await asyncio.sleep(0)
    await background.stop()
    assert ended.is_set()


async def test_exception_in_a_task_reaches_the_exception_handler() -> None:
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: contexts.append(context))
    background = CoordinatorTasks("a test")

    async def work() -> None:
        raise ValueError("oops")

    background.spawn(work())
    await asyncio.sleep(0)
    await background.stop()
    (context,) = contexts
    assert context["message"] == "a test has a bug" and isinstance(context["exception"], ValueError)


def clock() -> Callable[[], int]:
    loop = asyncio.get_running_loop()
    return lambda: int(loop.time() * 1000)


async def test_earliest_deadline_fires_first() -> None:
    rung: asyncio.Queue[str] = asyncio.Queue()
    now_ms = clock()
    alarm: CoordinatorTimer[str] = CoordinatorTimer(now_ms, lambda key, at_ms: rung.put_nowait(key))
    start_ms = now_ms()
    alarm.set("late", start_ms + 20)
    alarm.set("never", start_ms + 5)
    alarm.start()
    alarm.set("soon", start_ms + 1)
    alarm.forget("never")
    async with asyncio.timeout(60):
        assert [await rung.get(), await rung.get()] == ["soon", "late"]
    assert now_ms() >= start_ms + 20
    alarm.stop()


async def test_clock_jump_does_not_delay_later_timers() -> None:
    """The timer's deadline has passed; a later one is much earlier than that timer."""
    rung: asyncio.Queue[str] = asyncio.Queue()
    now_ms, jumped_ms = clock(), 0
    alarm: CoordinatorTimer[str] = CoordinatorTimer(
        lambda: now_ms() + jumped_ms, lambda key, at_ms: rung.put_nowait(key)
    )
    alarm.start()
    alarm.set("in ten minutes", now_ms() + 600_000)
    jumped_ms = 3_600_000
    alarm.set("soon", now_ms() + jumped_ms + 5)
    async with asyncio.timeout(60):
        assert {await rung.get(), await rung.get()} == {"in ten minutes", "soon"}
    alarm.stop()


async def test_timer_does_not_fire_before_start_or_after_stop() -> None:
    rung: list[str] = []
    alarm: CoordinatorTimer[str] = CoordinatorTimer(clock(), lambda key, at_ms: rung.append(key))
    alarm.set("a", 0)
    await asyncio.sleep(0.005)
    assert rung == []
    alarm.start()
    alarm.stop()
    await asyncio.sleep(0.005)
    assert rung == []
    alarm.wake()
    assert rung == ["a"]
