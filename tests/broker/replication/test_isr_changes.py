"""ISR changes on their way to the controller: delayed, refused, repeated."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker.replication.replica_cluster import batch, log_values, replica_cluster, until


async def test_delayed_proposal_for_an_earlier_broker_epoch_is_refused_and_retried() -> None:
    """KIP-903: before the controller's write, the follower restarts with an empty disk."""
    async with replica_cluster() as cluster:
        await cluster.lead(1, isr=(1, 2))
        cluster.hold = asyncio.Event()
        await cluster.produce(1, batch("a"))
        await until(lambda: len(cluster.proposals) == 1)
        await cluster.kill(3)
        await cluster.start(3)  # a new disk
        cluster.hold.set()
        await until(lambda: cluster.partition(1).pending is None)
        assert cluster.partition(1).isr == (1, 2), "the controller saw that broker 3 had been registered anew"
        await cluster.tell("t", 0, only=(3,))
        await until(lambda: cluster.assigned["t", 0].isr == (1, 2, 3))
        assert log_values(cluster.partition(3)) == ["a"]


@pytest.mark.parametrize("trouble", ["connection", "unsupported", "whole answer", "one row"])
async def test_failed_proposal_is_retried(trouble: str) -> None:
    async with replica_cluster(2) as cluster:
        cluster.troubles.append(trouble)
        await cluster.lead(1, replicas=(1, 2), isr=(1,))
        await until(lambda: cluster.partition(1).isr == (1, 2))
        assert len(cluster.proposals) == 2
        assert not cluster.troubles


async def test_stopped_follower_leaves_the_isr_and_acks_all_continues() -> None:
    async with replica_cluster(replica_lag_time_max_ms=200) as cluster:
        await cluster.lead(1)
        await cluster.produce(1, batch("a"))
        await cluster.kill(3)
        await cluster.publish()
        row = await cluster.produce(1, batch("b"))
        assert row.error_code == 0
        assert cluster.assigned["t", 0].isr == (1, 2)
        changes = cluster.brokers[1].replicas.isr_changes
        assert (changes.shrinks, changes.expansions) == (1, 0)


async def test_follower_that_lives_but_lags_leaves_the_isr_and_acks_all_continues() -> None:
    """It could still rejoin, but by then it has not been caught up for too long to hold records back."""
    async with replica_cluster(2, replica_lag_time_max_ms=200) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        await cluster.produce(1, batch("a"))
        cluster[2].replicas.fetchers.forget(cluster.partition(2))
        assert (await cluster.produce(1, batch("b"), timeout_ms=5000)).error_code == 0
        assert cluster.assigned["t", 0].isr == (1,)
