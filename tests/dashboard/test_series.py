"""Goal: a time without measurements is a gap, and events that repeat are one row."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dashboard.chromium import Page

pytestmark = pytest.mark.browser


def sample(at: float, count: int, span: float = 1.0) -> dict[str, Any]:
    return {"at": at, "span": span, "count": count}


def slow(number: int, at: float, api: str = "Fetch", ms: int = 1500) -> dict[str, Any]:
    return {"number": number, "at": at, "kind": "slow request", "api": api, "node": 1, "client": "c", "ms": ms}


def test_line_is_interrupted_where_samples_are_missing(modules: Page) -> None:
    watched = [sample(10, 1), sample(11.2, 2, 1.2), sample(60, 3), sample(61, 4)]
    assert modules.run("series.js", "it.gapsOf(given[0])", watched) == [[11.2, 59]]
    times, values = modules.run("series.js", "it.columnsOf(given[0], (one) => [one.count])", watched)
    assert times == [10, 11.2, 35.1, 59, 60, 61]
    assert values == [1, 2, None, 3, 3, 4]


def test_late_sample_is_no_gap(modules: Page) -> None:
    late = [sample(10, 1), sample(11.9, 2)]
    assert modules.run("series.js", "it.gapsOf(given[0])", late) == []
    assert modules.run("series.js", "it.columnsOf(given[0], (one) => [one.count])", late) == [[10, 11.9], [1, 2]]


def test_window_is_seconds_and_not_samples(modules: Page) -> None:
    found = modules.run("series.js", "it.lastOf(given[0], 61, 20)", [sample(at, 1) for at in (10, 11, 60, 61, 62)])
    assert [one["at"] for one in found] == [60, 61]


def test_slow_requests_of_an_api_are_one_row_with_a_count(modules: Page) -> None:
    other = {"number": 4, "at": 96.0, "kind": "leader", "topic": "t", "partition": 0, "leader": 1, "leader_epoch": 1}
    events = [slow(6, 98, ms=1200), slow(5, 97, "Produce"), other, slow(3, 95, ms=3200), slow(1, 20), slow(0, 19)]
    rows = modules.run("series.js", "it.fold(given[0])", events)
    assert [[one["number"] for one in row] for row in rows] == [[6, 3], [5], [4], [1, 0]]
    texts = modules.run("kinds.js", "given[0].map(it.toldAll)", rows)
    assert texts[0] == "Fetch was slow 2 times at node 1, at most 3,200 ms"
    assert texts[1] == "Produce of c took 1,500 ms at node 1"


def test_events_that_were_asked_for_join_those_that_came_meanwhile(modules: Page) -> None:
    def numbers(known: list[int], more: list[int]) -> Any:
        given = [[{"number": one} for one in each] for each in (known, more)]
        return modules.run("series.js", "it.merged(given[0], given[1]).map((one) => one.number)", *given)

    assert numbers([], [1, 2]) == [1, 2]
    assert numbers([1, 2], [3]) == [1, 2, 3]
    assert numbers([7], [1, 2, 7]) == [1, 2, 7]
    assert numbers([1, 9], [2, 3, 9]) == [1, 2, 3, 9]


def test_steps_of_a_resize_are_those_of_the_present_topic(modules: Page) -> None:
    def events(*rows: tuple[float, str, int | None]) -> list[dict[str, Any]]:
        return [{"at": at, "kind": kind} | ({} if one is None else {"generation": one}) for at, kind, one in rows]

    former = events((1, "resize planned", 1), (2, "resize fenced", 1), (3, "resize published", 1))
    former += events((4, "partition removed", None), (5, "resize planned", 2), (6, "resize fenced", 2))
    times = "it.stepTimes(given[0], given[1]).map((one) => one ?? null)"
    assert modules.run("series.js", times, former, 1) == [1, 2, 3, 4]
    assert modules.run("series.js", times, former, 2) == [5, 6, None, None]
    again = former + events((7, "resize planned", 1), (8, "resize fenced", 1))
    assert modules.run("series.js", times, again, 1) == [7, 8, None, None]
    assert modules.run("series.js", times, [], 1) == [None] * 4
