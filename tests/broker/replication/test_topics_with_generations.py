"""The first batch with a generation is appended only after the controller has recorded the mark."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import (
    batch,
    log_values,
    produce_request,
    replica_cluster,
    until,
)


async def test_first_generation_batch_waits_for_one_proposal_to_the_controller() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        cluster.hold = asyncio.Event()
        first = asyncio.ensure_future(cluster.produce(1, batch("a"), generation=0))
        second = asyncio.ensure_future(cluster.produce(1, batch("b"), generation=0, acks=1))
        await until(lambda: bool(cluster.proposals))
        assert (await cluster.produce(1, batch("c"))).error_code == 0, "nobody else waits"
        assert log_values(cluster.partition(1)) == ["c"]
        cluster.hold.set()
        assert {(await first).error_code, (await second).error_code} == {0}
        (asked,) = cluster.proposals
        assert [(one.topic_name, one.has_generations, one.partitions) for one in asked.topics] == [("t", True, [])]
        assert (await cluster.produce(1, batch("d"), generation=0)).error_code == 0
        assert len(cluster.proposals) == 1


@pytest.mark.parametrize("trouble", ["connection", "unsupported", "whole answer"])
async def test_failed_proposal_is_retried(trouble: str) -> None:
    async with replica_cluster(1) as cluster:
        cluster.troubles.append(trouble)
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.produce(1, batch("a"), generation=0)).error_code == 0
        assert len(cluster.proposals) == 2


async def test_batch_without_a_controller_times_out_and_can_be_retried() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        cluster.hold = asyncio.Event()
        row = await cluster.produce(1, batch("a"), generation=0, timeout_ms=50)
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert log_values(cluster.partition(1)) == []
        cluster.hold.set()
        assert (await cluster.produce(1, batch("a"), generation=0)).error_code == 0


async def test_acks_0_batch_waits_for_the_proposal() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        cluster.hold = asyncio.Event()
        connection = await cluster[1].connect()
        connection.send_oneway(produce_request(batch("a"), 0, 0))
        await until(lambda: bool(cluster.proposals))
        assert log_values(cluster.partition(1)) == []
        cluster.hold.set()
        await until(lambda: log_values(cluster.partition(1)) == ["a"])
        await connection.close()


async def test_resigned_leader_stops_proposing_and_names_the_new_leader() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        cluster.troubles = ["whole answer"] * 10_000
        waits = asyncio.ensure_future(cluster.produce(1, batch("a"), generation=0))
        await until(lambda: bool(cluster.proposals))
        await cluster.lead(2, replicas=(1, 2))
        assert (await waits).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.troubles = []
        assert (await cluster.produce(2, batch("a"), generation=0)).error_code == 0
        assert log_values(cluster.partition(2)) == ["a"]


async def test_stopping_broker_completes_pending_proposals() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        cluster.hold = asyncio.Event()
        partition = cluster.partition(1)
        waits = asyncio.ensure_future(cluster[1].replicas.with_generations.write([partition], 60_000))
        await until(lambda: bool(cluster.proposals))
        await cluster[1].replicas.with_generations.stop()
        await waits
        assert not partition.has_generations
