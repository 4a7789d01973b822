"""A short marathon with kills of every role, and one without gates, which must be noticed."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.chaos.marathon import MarathonPlan, marathon, report

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.costly, pytest.mark.processes, pytest.mark.zookeeper]


OF_COMMITS = ("anabranch.clients.consumer.starting_positions", "anabranch.clients.consumer.classic_group_session")


def coordinators_said(nodes: Path) -> Iterator[str]:
    """What the brokers logged of groups and of where they are kept: for who has to find out what became of a commit."""
    for file in sorted(nodes.glob("node-*.log")):
        for line in file.read_text(errors="replace").splitlines():
            if "coordinators" in line or "__consumer_offsets" in line:
                yield f"{file.stem}: {line}"


async def test_every_record_is_delivered_once_and_in_order_under_faults(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in OF_COMMITS:
        caplog.set_level(logging.DEBUG, name)
    outcome = await marathon(
        MarathonPlan(records=50_000, resizes=6, faults=5, seed=253), say=log.info, directory=tmp_path
    )
    table = "\n".join(itertools.chain(report(outcome), () if outcome.good else coordinators_said(tmp_path / "nodes")))
    assert outcome.good, table
    assert outcome.ledger.delivered == outcome.acknowledged == 50_000, table
    assert len(outcome.resizes) == 6 and outcome.faults.total() == 5, table


async def test_readers_without_gates_cause_anomalies() -> None:
    """Readers start when everything is stored, over growth and merging. A key's records are in a partition, its child,
    and the first again, so any order without gates is wrong.
    """
    course = MarathonPlan(records=20_000, resizes=4, faults=0, seed=250, gates=False, head_start=20_000)
    outcome = await marathon(course, say=log.info)
    assert outcome.ledger.found, "\n".join(report(outcome))
