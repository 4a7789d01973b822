"""Seeded schedules of clusters under faults: equal seeds give equal runs."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Executor

import pytest

from tests.cases import examples
from tests.sim.command import Result, run_many
from tests.sim.effects import silent
from tests.sim.elsewhere import fingerprints_elsewhere

SEEDS = range(2, examples(8, costly=12))
"""`make sim` runs five hundred. One of these has transactions, which cost three times as much."""
AGAIN = slice(1, 3)


@pytest.fixture(scope="module")
def results(workers: Executor) -> list[Result]:
    return list(run_many(SEEDS, workers))


def test_schedules_under_faults_have_no_violation(results: list[Result]) -> None:
    """Nothing acknowledged is lost, repeated or out of order; every fault has occurred."""
    fired: Counter[str] = Counter()
    resizes = 0
    guilty = {}
    for result in results:
        fired += result.fired
        resizes += result.resizes
        if result.violations:
            guilty[result.seed] = result.violations[:3]
    assert not guilty, "repeat with: make sim SEED=n"
    assert resizes > 5
    assert silent(fired, len(SEEDS)) == []


def test_seed_repeats_a_run_exactly_in_any_process_and_order(results: list[Result]) -> None:
    """The process, the order of sets, the time and other runs change nothing."""
    here = {result.seed: result.fingerprint for result in results[AGAIN]}
    assert fingerprints_elsewhere(reversed(here), "everything") == here
