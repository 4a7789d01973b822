"""Planted bugs are caught: the quick ones here; `python -m tests.sim --planted` tries all of them."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import partial

import pytest

from anabranch.broker.coordinators import transaction_requests
from anabranch.broker.replication.partition import Partition
from tests.sim.aims import AIMS
from tests.sim.planted import AIMED_AT, PLANTS, Planter, catch, planted
from tests.sim.scenarios import SCENARIOS, Scenario
from tests.sim.schedule import Schedule


@pytest.mark.parametrize(
    ("bug", "checkers"),
    [
        ("acknowledge before replication", ("C13", "A1")),
        ("consumers read above the high watermark", ("C14", "A1")),
        ("an election keeps the leader epoch", ("C6",)),
        ("generation of a batch not checked", ("B3",)),
        ("gates are always open", ("B1", "B2", "A33")),  # or a copier was the first to read too early
        ("boundaries are crossed without a flush", ("B12",)),
        ("transactions: open ones do not hold readers back", ("A27", "A28")),
        ("transactions: their offsets are kept in memory only", ("A29", "A31", "L1")),
    ],
)
def test_a_planted_bug_is_caught_by_the_checker_of_its_rule(bug: str, checkers: tuple[str, ...]) -> None:
    caught = catch(bug, limit=60)
    assert caught.found
    assert {one.split()[0] for one in caught.checkers} & set(checkers), caught.detail


def test_a_bug_that_escapes_says_whether_its_aim_came_about_and_its_code_was_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a story that does not come about any more would, and code that the product does not reach any more."""

    def harmless(planter: Planter) -> None:
        original = planter.replace(transaction_requests, "end", lambda *row, **options: original(*row, **options))

    monkeypatch.setitem(PLANTS, "harmless", harmless)
    monkeypatch.setitem(AIMED_AT, "harmless", "an EndTxn is late")
    assert catch("harmless", limit=2).verdict == "NOT CAUGHT: its aim came about in 2 of them, its code was called in 2"

    async def nothing_happens(schedule: Schedule) -> bool:
        await asyncio.sleep(10)
        return False

    rotten = dataclasses.replace(AIMS["a session ends while a topic is made"], story=nothing_happens)
    schedule = Scenario(partial(Schedule, aim=rotten), lambda fired, schedules: [])
    monkeypatch.setitem(SCENARIOS, "an EndTxn is late", schedule)
    assert catch("harmless", limit=1).verdict == "NOT CAUGHT: its aim came about in 0 of them, its code was called in 0"


def test_what_is_planted_is_taken_away_again() -> None:
    before = dict(vars(Partition))
    for bug in PLANTS:
        with planted(bug):
            pass
    assert dict(vars(Partition)) == before
