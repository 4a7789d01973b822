"""Each way in which a test can be wrong behind its own back is caught by the loop that it runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.loops import LOOPS

kept: list[asyncio.Task[None]] = []


async def fails() -> None:
    raise ValueError("oops")


async def waits() -> None:
    await asyncio.get_running_loop().create_future()


async def fails_when_cancelled() -> None:
    try:
        await waits()
    finally:
        await fails()


async def a_task_that_dies_unobserved() -> None:
    asyncio.create_task(fails())  # noqa: RUF006
    await asyncio.sleep(0.01)


async def a_callback_that_raises_while_the_test_waits_for_ever() -> None:
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await waits()


async def a_task_that_is_forgotten_while_it_waits() -> None:
    asyncio.create_task(waits())  # noqa: RUF006
    await asyncio.sleep(0)


async def a_task_that_fails_when_the_loop_is_closed() -> None:
    kept.append(asyncio.create_task(fails_when_cancelled()))
    await asyncio.sleep(0)


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())
@pytest.mark.parametrize(
    ("mistake", "heard"),
    [
        (a_task_that_dies_unobserved, "oops"),
        (a_callback_that_raises_while_the_test_waits_for_ever, "division by zero"),
        (a_task_that_is_forgotten_while_it_waits, "destroyed but it is pending"),
        (a_task_that_fails_when_the_loop_is_closed, "oops"),
    ],
)
def test_a_mistake_is_heard(
    loop: Callable[[], asyncio.AbstractEventLoop], mistake: Callable[[], Coroutine[Any, Any, None]], heard: str
) -> None:
    with pytest.raises(AssertionError, match=rf"nobody handled: .*{heard}"), asyncio.Runner(loop_factory=loop) as one:
        one.run(mistake())
    kept.clear()


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())
def test_a_failure_of_the_test_itself_comes_first(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def mistaken() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"), asyncio.Runner(loop_factory=loop) as one:
        one.run(mistaken())


async def test_a_test_that_expects_it_listens_itself() -> None:
    heard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(str(context["exception"])))
    await a_task_that_dies_unobserved()
    assert heard == ["oops"]
