"""Schedules with records deleted at any step of a resize; L2 notices a stuck group."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Executor
from typing import Any

from tests.sim.command import run_many
from tests.sim.deleting import DELETION_FAULTS, OTHERS, DeletingSchedule

SEEDS = (1, 2, 12)
"""Every fault comes up in these; `make sim SCENARIO=deleting` runs hundreds."""


def test_schedules_of_deletions_have_no_violation(workers: Executor) -> None:
    """Each group gets the remaining records, and only requested deletions happen."""
    fired: Counter[str] = Counter()
    for result in run_many(SEEDS, workers, "deleting"):
        assert result.violations == (), f"repeat with: make sim SCENARIO=deleting SEED={result.seed}"
        fired += result.fired
    assert {name: fired[f"fault: {name}"] > 0 for name in DELETION_FAULTS} == dict.fromkeys(DELETION_FAULTS, True)
    assert fired["segment expired"] > 0


class Forgetful(list[Any]):
    """Loses what one partition delivers."""

    def append(self, row: Any) -> None:
        if row.place[1]:
            super().append(row)


def test_second_group_without_a_partition_fails_the_schedule() -> None:
    schedule = DeletingSchedule(2)
    schedule.others.deliveries = Forgetful()
    violations = schedule.run().violations
    [liveness] = [one for one in violations if one.startswith("run: L2 not handed out")]
    assert f"; {OTHERS}: " in liveness and "; g: " not in liveness
