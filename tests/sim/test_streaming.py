"""A Streams application through kills, crashes and cuts: each key is counted 1, 2, 3, nothing left out or repeated.

The long form is `python -m tests.sim.streaming`, with resizes of the input.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.streaming import play

SCHEDULES = 2


@pytest.mark.timeout(300)
def test_some_schedules_are_without_violation() -> None:
    fired: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        _, violations, happened = play(seed, resizes=False)
        assert not violations, f"python -m tests.sim.streaming {seed} --no-resizes"
        fired += happened
    assert fired["records"] > 200
    assert fired["client killed"] and fired["process killed"]
