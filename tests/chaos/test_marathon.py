"""A short marathon with kills of every role, and one whose readers have no gates, which must be noticed."""

from __future__ import annotations

import logging

import pytest

from anabranch.chaos.marathon import Course, marathon, report

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


async def test_every_record_comes_once_and_in_order_whoever_is_killed() -> None:
    outcome = await marathon(Course(records=200_000, resizes=12, faults=8, seed=253), say=log.info)
    told = "\n".join(report(outcome))
    assert outcome.good, told
    assert outcome.ledger.delivered == outcome.acknowledged == 200_000, told
    assert len(outcome.resizes) == 12 and outcome.faults.total() == 8, told


async def test_readers_without_gates_are_noticed() -> None:
    """Goal: the ledger would notice.

    Method: nobody reads before everything is stored, over growth and merging. A key's records lie in a partition, then
    in its child, then in the first again: whichever of the two is handed out first, without gates it is out of order.
    """
    course = Course(records=40_000, resizes=4, faults=0, seed=250, gates=False, head_start=40_000)
    outcome = await marathon(course, say=log.info)
    assert outcome.ledger.found, "\n".join(report(outcome))
