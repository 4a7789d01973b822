"""A hundred seeded schedules of whole clusters under faults, and the same ones again: equal seeds, equal runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.sim.command import run_many, run_one
from tests.sim.effects import silent

SCHEDULES = 100


@pytest.mark.timeout(400)
def test_a_hundred_schedules_under_faults_are_without_violation() -> None:
    """Goal: nothing acknowledged is lost, repeated or out of order, whatever fails; and every fault has fired."""
    fired: Counter[str] = Counter()
    resizes = 0
    guilty = {}
    for result in run_many(range(SCHEDULES), processes=2):
        fired += result.fired
        resizes += result.resizes
        if result.violations:
            guilty[result.seed] = result.violations[:3]
    assert not guilty, "repeat with: make sim SEED=n"
    assert resizes > 50
    assert silent(fired, SCHEDULES) == []


@pytest.mark.parametrize("seed", [3, 17])
def test_a_seed_repeats_a_run_exactly_in_any_process(seed: int) -> None:
    """Goal: a run depends on its seed alone; set order (PYTHONHASHSEED), the process and the time change nothing."""
    here = run_one(seed)
    assert run_one(seed).fingerprint == here.fingerprint
    code = f"from tests.sim.command import run_one; print(run_one({seed}).fingerprint)"
    for hash_seed in ("1", "77"):
        there = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.strip() == here.fingerprint
