from __future__ import annotations

import inspect
from typing import NamedTuple

import pytest

from tests.cases import for_each


class Pair(NamedTuple):
    left: int
    right: int


def test_function_runs_with_every_case() -> None:
    seen: list[object] = []
    for_each([(1, 2), (3, 4)])(lambda left, right: seen.append((left, right)))()
    for_each([Pair(5, 6), "text"])(seen.append)()
    assert seen == [(1, 2), (3, 4), Pair(5, 6), "text"]


async def test_coroutine_function_runs_with_every_case() -> None:
    seen: list[int] = []

    async def function(case: int) -> None:
        seen.append(case)

    running = for_each(range(3))(function)()
    assert running is not None
    await running
    assert seen == [0, 1, 2]


def test_failure_names_its_case() -> None:
    def function(case: int) -> None:
        if case == 2:
            pytest.fail("wrong")

    with pytest.raises(pytest.fail.Exception, match="wrong") as caught:
        for_each(range(5))(function)()
    assert caught.value.__notes__ == ["failed in the case 2"]


def test_test_without_cases_is_refused() -> None:
    with pytest.raises(AssertionError, match="without cases"):
        for_each([])


def test_made_test_has_name_of_function_and_no_parameters() -> None:
    def test_something(case: int) -> None:
        """Shown in reports."""

    made = for_each([1])(test_something)
    assert (made.__name__, made.__doc__) == ("test_something", "Shown in reports.")
    assert not inspect.signature(made).parameters
