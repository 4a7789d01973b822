"""Copiers copy exactly once while processes are killed. `test_run` has them beside all other clients."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.chaos.copiers import CopiedTopic
from anabranch.chaos.faults import Fired
from anabranch.chaos.plan import Plan
from anabranch.chaos.run import chaos
from anabranch.chaos.verdict import report

log = logging.getLogger(__name__)


def enough(fired: Sequence[Fired]) -> bool:
    names = [one.name for one in fired]
    return names.count("crash a copier") >= 2 and names.count("kill") >= 2


@pytest.mark.costly
@pytest.mark.processes
@pytest.mark.zookeeper
async def test_copiers_copy_each_record_once_while_processes_are_killed(tmp_path: Path) -> None:
    plan = Plan(
        duration_s=12,
        enough=enough,
        seed=5,
        pace_s=1.5,
        copiers=2,
        resize_every_s=6,
        faults=("kill", "crash a copier", "expire a session"),
        patience_s=300,
    )
    verdict = await chaos(plan, say=log.info, directory=tmp_path)
    table = "\n".join(report(verdict))
    assert not verdict.anomalies, table
    [copied] = verdict.sides
    assert isinstance(copied, CopiedTopic) and copied.output.rows, table
