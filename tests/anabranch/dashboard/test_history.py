"""The state at any kept time is right within a second; time and bytes are bounded."""

from __future__ import annotations

import random
from typing import Any

from anabranch.dashboard.history import GRAIN_S, History
from anabranch.dashboard.state_delta import StateSheet


def filled(history: History, seconds: int, width: int = 3) -> list[tuple[float, dict[str, Any]]]:
    """Ten random changes a second; returns what the state was when."""
    rng, sheet, recorded = random.Random(4), StateSheet(), []
    for tick in range(seconds * 10):
        at_s = 100 + tick / 10
        sheet.put(f"topic/{rng.randrange(width)}", rng.random())
        if rng.random() < 0.2:
            sheet.drop(f"topic/{rng.randrange(width)}")
        delta = sheet.take()
        history.note(at_s, delta, sheet.rows)
        recorded.append((at_s, dict(sheet.rows)))
    return recorded


def test_every_recorded_moment_is_restored() -> None:
    history = History()
    recorded = dict(filled(history, 200))
    assert history.begin_s == 100
    for at_s in (100, 100.05, 131.3, 159.95, 160.0, 177.7, 299.9, 1000.0):
        found = history.at(at_s)
        assert found is not None
        since_s, rows = found
        assert min(at_s, 299.9) - GRAIN_S - 0.11 <= since_s <= at_s
        assert rows == recorded[since_s]
    assert history.at(99.9) is None
    for at_s in list(recorded)[::3]:
        found = history.at(at_s)
        assert found is not None
        assert found[1] == recorded[found[0]], at_s


def test_change_is_not_moved_to_the_next_one_a_minute_later() -> None:
    history, sheet = History(), StateSheet()
    for at_s in (100.0, 100.3, 150.0):
        sheet.put("topic/t", at_s)
        history.note(at_s, sheet.take(), sheet.rows)
    assert [history.at(at_s) for at_s in (100.2, 130.0, 150.0)] == [
        (at_s, {"topic/t": at_s}) for at_s in (100.0, 100.3, 150.0)
    ]


def test_oldest_entries_are_dropped_by_age() -> None:
    history = History(span_s=120)
    filled(history, 400)
    assert history.begin_s is not None
    assert 180 <= history.begin_s - 100 <= 280
    assert history.at(150) is None


def test_oldest_entries_are_dropped_by_size() -> None:
    history = History(bytes_max=20_000)
    filled(history, 600, width=50)
    assert history.size_bytes < 60_000  # the present minute is kept
    assert history.begin_s is not None
    assert history.begin_s > 400


def test_empty_history_has_no_moments() -> None:
    history = History()
    assert history.begin_s is None
    assert history.at(5) is None
