"""What the page derives from its rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dashboard.chromium import Page

pytestmark = pytest.mark.browser


def test_partitions_are_found_while_lower_ones_have_drained(modules: Page) -> None:
    def indices(partitions: list[int], *counts: int) -> Any:
        history = list(enumerate(counts))
        rows = {"topic/t": {"topic": "t", "partitions": len(partitions), "history": history}}
        rows |= {f"partition/t/{one}": {"hw": 0} for one in partitions}
        put = "Object.entries(given[0]).forEach(([key, row]) => it.store.live.put(key, row))"
        gone = "for (const key of given[1]) it.store.live.drop(key)"
        found = f"(() => {{ {put}; const found = it.store.indicesOf('t'); {gone}; return found; }})()"
        return modules.run("store.js", found, rows, list(rows))

    assert indices([0, 1, 2]) == [0, 1, 2], "a topic without generations"
    assert indices([0, 1, 2, 3], 4) == [0, 1, 2, 3]
    assert indices([0, 1, 2, 3, 5, 7], 4, 8, 4) == [0, 1, 2, 3, 5, 7]
    assert indices([0, 1, 2, 3, 4, 5], 4) == [0, 1, 2, 3, 4, 5], "a growth is being prepared"
    assert modules.run("store.js", "it.store.indicesOf('t')") == []


def test_requests_are_those_of_the_moment_that_is_shown(modules: Page) -> None:
    samples = [{"at": 10, "span": 1}, {"at": 11, "span": 1}, {"at": 60, "span": 1}]
    at = "(() => { const { store } = it; [store.traffic, store.at] = given; const found = store.sample()?.at; "
    at += "store.traffic = []; store.at = null; return found ?? null; })()"
    moments = (None, 10.5, 30.0, 59.5, 61.0)
    assert [modules.run("store.js", at, samples, one) for one in moments] == [60, 11, None, 60, None]
