"""Schedules of resizes under faults, every kind of crash point, and noticed defects."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Executor

import pytest

from anabranch.broker.replication.partition import Partition
from anabranch.chaos.checkers.invariants import INVARIANTS
from anabranch.clients.consumer.gate import TopicGate
from tests.cases import examples
from tests.sim import crash_points
from tests.sim.command import Result, run_many
from tests.sim.defects import DEFECTS, SCENARIO
from tests.sim.elsewhere import fingerprints_elsewhere
from tests.sim.planted import catch, planted
from tests.sim.resizing import silent

SCHEDULES = examples(7, costly=10)
"""`make sim` runs a thousand."""
AGAIN = 2


@pytest.fixture(scope="module")
def results(workers: Executor) -> list[Result]:
    return list(run_many(range(SCHEDULES), workers, SCENARIO))


def test_schedules_of_resizes_have_no_violation(results: list[Result]) -> None:
    """I0 to I15 under any crash; every fault and kind of resize occurred, every invariant had evidence."""
    fired: Counter[str] = Counter()
    guilty = {}
    for result in results:
        fired += result.fired
        if result.violations:
            guilty[result.seed] = result.violations[:3]
    assert not guilty, "repeat with: make sim SCENARIO=resize SEED=n"
    assert silent(fired, SCHEDULES) == []
    assert fired["resize: growth"] + fired["resize: shrink"] > 3 * SCHEDULES
    assert all(fired[f"judged: {one.name}"] >= SCHEDULES for one in INVARIANTS)


@pytest.mark.costly
def test_seed_repeats_its_resizes_exactly_in_any_process_and_order(results: list[Result]) -> None:
    here = {result.seed: result.fingerprint for result in results[:AGAIN]}
    assert fingerprints_elsewhere(reversed(here), SCENARIO) == here


@pytest.mark.parametrize("every_cross", [False, pytest.param(True, marks=pytest.mark.costly)])
def test_resize_is_finished_in_order_from_any_crash_point(workers: Executor, every_cross: bool) -> None:
    """Every kind of crash point converges (I11): alone, with a failover, with a second crash, or with a zombie."""
    points = crash_points.recorded()
    assert len(points) > 100
    runs = crash_points.some_runs(points, every_cross=every_cross)
    visited = set()
    for outcome in crash_points.run_many(runs, workers):
        assert outcome.failed == points[outcome.point - 1], "the run was the same until then"
        assert outcome.violations == (), f"point {outcome.point} ({outcome.failed}) x {outcome.cross}"
        assert outcome.crashes == (2 if outcome.cross == "second crash" else 1)
        visited.add((outcome.failed, outcome.cross))
    assert {name for name, _ in visited} == set(points)
    assert {cross for _, cross in visited} == set(crash_points.CROSSES)
    assert len(visited) == len(set(points)) * (len(crash_points.CROSSES) if every_cross else 1)


LIKELY = {
    "duplicates are looked for after the generation is checked": 4,
    "the generation is the topic's, not the partition's": 2,
    "an index that is used again begins with epoch 0 and offset 0": 2,
}
"""The seeds that caught a bug last: tried first."""


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "checkers"),
    [
        ("generation of a batch not checked", ("B1", "B3", "B13")),
        ("duplicates are looked for after the generation is checked", ("B13", "A2")),
        ("the generation is the topic's, not the partition's", ("B20",)),
        ("returned records are placed behind younger ones", ("B1", "B13")),
        ("nobody is told that keys have arrived", ("B12",)),
        ("a topic is marked as ordered after its first batch with a generation is in", ("B23",)),
        ("new leader epochs are shown before their generation", ("B18",)),
        ("an index that is used again begins with epoch 0 and offset 0", ("B17", "B21", "C6")),
        ("a partition changes its generation within a leader epoch", ("B16", "B21", "B20", "C15", "B3")),
    ],
)
def test_defect_is_caught_by_checker_of_its_rule(name: str, checkers: tuple[str, ...]) -> None:
    caught = catch(name, limit=25, scenario=SCENARIO, first_seed=LIKELY.get(name, 0))
    assert caught.found
    assert {one.split()[0] for one in caught.checkers} & set(checkers), caught.detail


def test_planted_defect_is_removed() -> None:
    before = dict(vars(Partition)), dict(vars(TopicGate))
    for name in DEFECTS:
        with planted(name):
            pass
    assert (dict(vars(Partition)), dict(vars(TopicGate))) == before
