"""Planted bugs are caught: the quick ones here; `python -m tests.sim --planted` tries all of them."""

from __future__ import annotations

import pytest

from broker.replication.partition import Partition
from tests.sim.planted import PLANTS, catch, planted


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("bug", "checkers"),
    [
        ("acknowledge before replication", ("C13", "A1")),
        ("consumers read above the high watermark", ("C14", "A1")),
        ("an election keeps the leader epoch", ("C6",)),
        ("generation of a batch not checked", ("B3",)),
        ("gates are always open", ("B1", "B2")),
        ("boundaries are crossed without a flush", ("B12",)),
        ("transactions: open ones do not hold readers back", ("A27", "A28")),
        ("transactions: their offsets are kept in memory only", ("A29", "A31", "L1")),
    ],
)
def test_a_planted_bug_is_caught_by_the_checker_of_its_rule(bug: str, checkers: tuple[str, ...]) -> None:
    caught = catch(bug, limit=60)
    assert caught.found
    assert {one.split()[0] for one in caught.checkers} & set(checkers), caught.detail


def test_what_is_planted_is_taken_away_again() -> None:
    before = dict(vars(Partition))
    for bug in PLANTS:
        with planted(bug):
            pass
    assert dict(vars(Partition)) == before
