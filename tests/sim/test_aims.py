"""Every aim occurs, the product survives it, and it shows its bugs; `--planted` and `--defects` try all."""

from __future__ import annotations

from concurrent.futures import Executor

import pytest

from tests.sim.aims import AIMS
from tests.sim.command import run_one
from tests.sim.defects import DEFECTS
from tests.sim.planted import AIMED_AT, PLANTS, catch

SEEDS = 40
"""The first of these in which a story comes about is enough; it needs others to be where it wants them."""

LIKELY = {
    "a leader with a tail sleeps over a removal and leads the next life of its index": 10,
    "who told an end dies with records before it that nobody else has": 1,
    "a controller is replaced while a broker connects to it": 2,
    "records are deleted beyond a closed gate, and their partition gets another leader": 1,
    "a member's search for its start outlasts its rebalance timeout": 1,
    "transactions: a marker of an old coordinator is accepted": 1,
    "found: a truncation is not on the disk when the log goes on": 2,
    "a start is committed in a later assignment than it was found for": 1,
    "found: records that are deleted behind a closed gate are waited for": 2,
    "a static member relies on its session timeout": 2,
}
"""The seeds in which a story came about last, or a bug was caught: tried first."""


def run_aim(name: str) -> tuple[str, bool, tuple[str, ...]]:
    """Run an aim until its story has come about; the violations of all runs."""
    violations: list[str] = []
    for seed in (LIKELY.get(name, 0), *range(SEEDS)):
        result = run_one(seed, name)
        violations += result.violations
        if result.fired[f"fault: {name}"]:
            return name, True, tuple(violations)
    return name, False, tuple(violations)


def test_aimed_scenario_occurs_without_violation(workers: Executor) -> None:
    for name, came_about, violations in workers.map(run_aim, AIMS):
        assert violations == (), f"repeat with: python -m tests.sim SEED --scenario {name!r}"
        assert came_about, name


@pytest.mark.costly
@pytest.mark.parametrize(
    ("bug", "checkers"),
    [
        ("transactions: a marker of an old coordinator is accepted", ("A35", "A16", "A27")),
        ("transactions: a late EndTxn ends the next transaction", ("A28", "A27", "A16", "L1")),
        ("controller writes unfenced", ("C11",)),
        ("found: a broker is reminded of a replica that was deleted", ("C19",)),
        ("found: a truncation is not on the disk when the log goes on", ("A1", "C16")),
        ("found: the leader epochs are written and not flushed", ("A1", "C7", "C16", "L1")),
        ("found: a replica whose records have rotted leads all the same", ("A1", "A3", "A4")),
        ("found: a leader whose flush has failed stays in office", ("L1",)),
        ("a start is committed in a later assignment than it was found for", ("A48",)),
        ("a static member relies on its session timeout", ("A24", "A40")),
        ("a replica that moves to another log directory leaves its last records behind", ("C5", "C2", "A1", "A3")),
        ("a replica that moves to another log directory forgets its producers", ("A2",)),
        ("a restored node takes the registration of its earlier session for its own", ("L1",)),
        ("a client keeps a right that was taken away", ("A49",)),
        ("a client that was refused stays refused", ("L1", "L2")),
        ("found: a broker whose session has expired goes on coordinating groups", ("A40",)),
        ("a static member that returns has lost its assignment", ("L1", "L2")),
        ("a static member that has left keeps its partitions for ever", ("L1", "L2")),
        ("found: a fetch that is not answered is waited for, whatever the request timeout says", ("L2",)),
        ("found: records that are deleted behind a closed gate are waited for", ("L2",)),
        ("a replica keeps its old log when its index is used again", ("B17", "B19", "A1")),
        ("a gate looks at the key epochs just before, not beyond", ("B1",)),
        ("found: a replica that was moved away stays without a StopReplica", ("C19",)),
        ("found: a replica of a removed partition stays without a StopReplica", ("C19",)),
        ("found: a deletion whose response was lost deletes the next topic of the name", ("C20",)),
    ],
)
def test_aimed_bug_is_caught_by_checker_of_its_rule(bug: str, checkers: tuple[str, ...]) -> None:
    caught = catch(bug, limit=40, first_seed=LIKELY.get(bug, 0))
    assert caught.found
    assert {one.split()[0] for one in caught.checkers} & set(checkers), caught.detail


def test_every_aim_belongs_to_an_existing_bug() -> None:
    assert set(AIMED_AT.values()) == set(AIMS)
    assert AIMED_AT.keys() <= PLANTS.keys() | DEFECTS.keys()
