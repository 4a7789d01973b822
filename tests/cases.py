"""Run many short cases as one test: pytest and pytest-xdist need several milliseconds for each test, in each worker.

Also marks some cases of a test as costly, and gives a property test fewer examples without `--costly`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import settings


def for_each(cases: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[[], Awaitable[None] | None]]:
    """Run a test function with every case, a tuple of its arguments or its only argument. A failure names its case."""
    every = list(cases)
    assert every, "a test without cases cannot fail"

    def decorate(function: Callable[..., Any]) -> Callable[[], Awaitable[None] | None]:
        def test() -> None:
            for case in every:
                with _named(case):
                    function(*_arguments(case))

        async def test_async() -> None:
            for case in every:
                with _named(case):
                    await function(*_arguments(case))

        made = test_async if inspect.iscoroutinefunction(function) else test
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):  # __wrapped__ would show fixtures to pytest
            setattr(made, name, getattr(function, name))
        return made

    return decorate


def costly(cases: Iterable[Any]) -> list[Any]:
    """Mark cases of `parametrize` as costly: they cover what the others cover, with other values."""
    return [pytest.param(*_arguments(case), marks=pytest.mark.costly) for case in cases]


def examples(ordinary: int, *, costly: int) -> int:
    """Return how many examples a property test has: more with `--costly`, which loads another profile."""
    return costly if settings.get_current_profile_name() == "others" else ordinary


def _arguments(case: Any) -> tuple[Any, ...]:
    return case if type(case) is tuple else (case,)  # a named tuple is one argument


@contextmanager
def _named(case: Any) -> Iterator[None]:
    try:
        yield
    except BaseException as error:  # pytest.fail and pytest.raises do not raise an Exception
        error.add_note(f"failed in the case {case!r}")
        raise
