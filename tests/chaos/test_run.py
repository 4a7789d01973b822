"""The minute of chaos that belongs to every test run, and a run on a product with a mistake, which must be noticed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from chaos.faults import FAULTS
from chaos.run import Plan, chaos, report

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.processes, pytest.mark.zookeeper, pytest.mark.timeout(280)]


def test_a_minute_of_faults_breaks_no_promise(tmp_path: Path) -> None:
    """Goal: no record that was acknowledged is lost, doubled or out of order, whatever happens for a minute.

    Method: three brokers, two spare controllers and three ZooKeeper servers, killed, frozen, cut off, slowed down and
    expired from a seed, while records flow, the topic is resized and a group reads; then every checker.
    """
    verdict = asyncio.run(chaos(Plan(duration_s=60, seed=903), say=log.info, directory=tmp_path))
    table = "\n".join(report(verdict))
    assert not verdict.anomalies, table
    assert len({one.name for one in verdict.fired}) >= 5, table
    assert sum(send.outcome == "ok" for send in verdict.record.history.sends) > 200, table


def test_a_product_that_acknowledges_too_early_is_noticed(tmp_path: Path) -> None:
    faults = ("kill", "kill two brokers")
    plan = Plan(duration_s=15, seed=1, pace_s=1.5, rate=100, faults=faults, patience_s=20)  # the lost never come
    assert set(plan.faults) < set(FAULTS)
    verdict = asyncio.run(chaos(plan, say=log.info, directory=tmp_path, module="tests.chaos.acks_too_early"))
    found = {line.partition(" ")[0] for line in verdict.anomalies}
    assert found & {"A1", "A3", "A4"}, "\n".join(report(verdict))
