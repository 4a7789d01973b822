"""A scrape counts each partition of a broker, and lets other work run meanwhile."""

from __future__ import annotations

import asyncio

from anabranch.broker.metrics.replica_counts import ReplicaCounts
from anabranch.broker.replication.partition import Partition, ReplicaRules
from anabranch.broker.storage.log_append import append_as_leader
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD
from tests.broker.replication import partitions
from tests.broker.replication.partitions import state_of
from tests.broker.replication.replica_cluster import batch
from tests.broker.yields import manual_clock


def hosted(index: int, *, min_isr: int = 1) -> Partition:
    partition = partitions.hosted(ReplicaRules(1, 30_000, lambda broker: 100 + broker))
    partition.index, partition.min_insync_replicas = index, min_isr
    return partition


async def test_replicas_are_counted_by_role_and_isr() -> None:
    led, incomplete, small, followed = hosted(0), hosted(1), hosted(2, min_isr=2), hosted(3)
    for one, isr in ((led, (1, 2, 3)), (incomplete, (1, 2)), (small, (1,))):
        one.become_leader(state_of(isr=isr), 0.0)
        append_as_leader(one.log, batch("v"), leader_epoch=one.leader_epoch, now_ms=1)
    incomplete.record_fetch(2, 1, 0, 102, 1.0)
    incomplete.advance_high_watermark(1.0)
    followed.become_follower(state_of(2, isr=(1, 2)))
    counts = await ReplicaCounts.of([led, incomplete, small, followed])
    assert (counts.led, counts.followed, counts.under_replicated, counts.under_min_isr) == (3, 1, 2, 1)
    assert counts.end_offsets == {led.topic: 3}
    assert counts.size_bytes == {led.topic: 3 * led.log.size_bytes}
    assert counts.high_watermarks == {(led.topic, index): int(index == 1) for index in range(4)}


async def test_other_work_runs_while_many_partitions_are_counted() -> None:
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    busy = asyncio.create_task(other())
    with manual_clock():
        await ReplicaCounts.of([hosted(0)] * (5 * ELEMENTS_PER_YIELD))
    busy.cancel()
    assert others >= 4
