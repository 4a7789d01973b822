"""Each kind of hidden error is caught by the test's event loop."""

from __future__ import annotations

import ast
import asyncio
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.loops import LOOPS, collect_garbage, looked_at_again

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


class Ring:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_what_outlives_a_look_is_found_by_the_first_one_behind_the_block() -> None:
    with looked_at_again():
        ring = Ring()
        found = weakref.ref(ring)
        collect_garbage()
        del ring
    assert found() is not None
    collect_garbage()
    assert found() is None


def brings_its_own_loop(test: ast.stmt) -> bool:
    """Whether it is a test that makes a coroutine only to run it there and then, on a loop that is not strict."""
    if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test"):
        return False
    inner = {node.name for node in test.body if isinstance(node, ast.AsyncFunctionDef)}
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "asyncio.run"
        and isinstance(node.args[0], ast.Call)
        and ast.unparse(node.args[0].func) in inner
        for node in ast.walk(test)
    )


def test_who_awaits_is_a_coroutine() -> None:
    files = (path for path in Path(__file__).parent.rglob("test_*.py") if "asyncio.run(" in path.read_text())
    found = [
        f"{path}: {test.name}"  # type: ignore[attr-defined]
        for path in files
        for test in ast.parse(path.read_text()).body
        if brings_its_own_loop(test)
    ]
    assert not found, f"write `async def test_...`: {found}"


def test_what_is_found() -> None:
    nested = "def test_a():\n    async def story(): ...\n    asyncio.run(story())"
    assert brings_its_own_loop(ast.parse(nested).body[0])
    assert not brings_its_own_loop(ast.parse(nested.replace("test_a", "helper")).body[0])
    assert not brings_its_own_loop(ast.parse("def test_a():\n    asyncio.run(fill())").body[0])
