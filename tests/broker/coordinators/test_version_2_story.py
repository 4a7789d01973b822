"""Transactions of version 2 with profile 4: every response equals Kafka 4.1.1's."""

from __future__ import annotations

import asyncio

from anabranch.cluster.in_process import Cluster
from tests.broker.coordinators import version_2_story

EARLY = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


async def test_each_response_equals_kafkas() -> None:
    async with asyncio.timeout(120), Cluster(1, kafka="4.1", properties=EARLY) as cluster:
        responses = await version_2_story.tell(*cluster.address(1))
    expected = version_2_story.FILE.read_text().splitlines()
    assert responses == expected
    assert len(expected) == 75
