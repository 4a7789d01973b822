"""A coordinator dies only at the named step."""

from __future__ import annotations

import subprocess
import sys

import pytest

from anabranch.broker.coordinators.runtime.failpoints import CRASH_STATUS, STEPS, crashing_at

PROGRAM = """
import sys
from anabranch.broker.coordinators.runtime.failpoints import crashing_at
reached = crashing_at(sys.argv[1])
for point in sys.argv[2:]:
    reached(point)
"""


@pytest.mark.parametrize("step", ["", "txn", "resize:after-plan", "txn:after-init:1"])
def test_unknown_step_is_no_failpoint(step: str) -> None:
    assert crashing_at(step) is None


def test_process_crashes_at_its_failpoint() -> None:
    step, *others = STEPS
    for points, status in ((others, 0), ([*others, step], CRASH_STATUS)):
        done = subprocess.run([sys.executable, "-c", PROGRAM, step, *points], check=False, capture_output=True)
        assert done.returncode == status, done.stderr
