"""A driver and a Python worker are killed once each. The long form: `python -m tests.spark_jobs.kills --times 20`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spark_jobs.audit import Target
from spark_jobs.session import java
from tests.spark_jobs import kills
from tests.spark_jobs.live import LiveCluster


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.skipif(java() is None, reason="NO SPARK: there is no Java on this machine")
def test_an_audit_whose_driver_and_worker_are_killed_says_the_same(tmp_path: Path) -> None:
    with LiveCluster(1) as live:
        expected = kills.write_down(live, seed=3)
        target = Target(live.servers, kills.TOPIC, tmp_path, kills.EXPECT, rows_per_trigger=300)
        killed = kills.disturb(target, iter([kills.DRIVER, kills.WORKER]), random.Random(3))
        assert killed >= 1
        assert kills.differences(target, expected.lines, None) == []
