"""Controller requests that a broker accepts; long requests yield to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from anabranch.broker.membership import controller_fence
from anabranch.broker.membership.controller_fence import ROWS_AT_ONCE, ControllerFence
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from anabranch.protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.replication.replica_cluster import Assigned, ReplicaCluster, batch, replica_cluster, until

COUNT = 10 * ROWS_AT_ONCE


@dataclass
class Steps:
    """In which turn of the loop a replica manager carried out each row."""

    turn: int = 0
    rows: dict[str, list[int]] = field(default_factory=dict)

    def watch(self, monkeypatch: pytest.MonkeyPatch, manager: Any, name: str) -> None:
        original, turns = getattr(manager, name), self.rows.setdefault(name, [])

        def noted(*arguments: Any, **named: Any) -> Any:
            turns.append(self.turn)
            return original(*arguments, **named)

        monkeypatch.setattr(manager, name, noted)

    def longest(self, name: str) -> int:
        """How many rows were carried out in one turn of the loop."""
        return max(self.rows[name].count(turn) for turn in set(self.rows[name]))


@asynccontextmanager
async def stepping(monkeypatch: pytest.MonkeyPatch, manager: Any) -> AsyncIterator[Steps]:
    steps = Steps()
    steps.watch(monkeypatch, manager, "apply_state")
    steps.watch(monkeypatch, manager, "stop_replica")

    async def count() -> None:
        while True:
            steps.turn += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        yield steps
    finally:
        counting.cancel()


def long_order(cluster: ReplicaCluster, *, replicas: tuple[int, ...] = (1,)) -> LeaderAndIsrRequest:
    """LeaderAndIsr of many partitions of one topic that broker 1 is to lead."""
    request = None
    for index in range(COUNT):
        cluster.assigned["many", index] = Assigned(replicas, replicas[0], 0, replicas)
        one = cluster.leader_and_isr("many", index)
        if request is None:
            request = one
        else:
            request.topic_states[0].partition_states += one.topic_states[0].partition_states
    assert request is not None
    return request


def long_stop(*, delete: bool = True) -> StopReplicaRequest:
    rows = [
        StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=delete)
        for index in range(COUNT)
    ]
    topic = StopReplicaTopicState(topic_name="many", partition_states=rows)
    return StopReplicaRequest(controller_id=9, controller_epoch=1, topic_states=[topic])


async def test_leader_and_isr_of_thousands_of_partitions_yields_regularly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with replica_cluster(1) as cluster, stepping(monkeypatch, cluster[1].replicas) as steps:
        response = await cluster.call(cluster[1], long_order(cluster))
        assert [row.error_code for row in response.topics[0].partition_errors] == [0] * COUNT
        response = await cluster.call(cluster[1], long_stop())
        assert [row.error_code for row in response.partition_errors] == [0] * COUNT
        assert not list(cluster[1].replicas.partitions())
    for name in ("apply_state", "stop_replica"):
        assert len(steps.rows[name]) == COUNT
        assert steps.longest(name) <= ROWS_AT_ONCE


async def test_producers_are_served_during_a_long_leader_and_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        manager = cluster[1].replicas
        original, appends, hosted = manager.apply_state, [], []

        async def append() -> None:
            manager.append_local(manager.leader_of("t", 0), batch("a"), acks=1, generation=None)
            hosted.append(sum(one.topic == "many" for one in manager.partitions()))

        def while_a_producer_sends(*arguments: Any, **named: Any) -> Any:
            if not appends:
                appends.append(asyncio.create_task(append()))
            return original(*arguments, **named)

        monkeypatch.setattr(manager, "apply_state", while_a_producer_sends)
        await cluster.call(cluster[1], long_order(cluster))
        assert hosted == [ROWS_AT_ONCE], "it did not wait for the others"


async def test_next_controller_request_waits_for_the_previous_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_fence, "ROWS_AT_ONCE", 1)  # so that the next one arrives long before the end
    async with replica_cluster(1) as cluster, stepping(monkeypatch, cluster[1].replicas) as steps:
        order = asyncio.create_task(cluster.call(cluster[1], long_order(cluster)))
        await until(lambda: cluster[1].replicas.replica("many", 0) is not None)
        await cluster.call(cluster[1], long_stop())  # over another connection, as if the first one were lost
        await order
        assert not list(cluster[1].replicas.partitions()), "whatever the order made, the deletion that followed took"
        assert max(steps.rows["apply_state"]) < min(steps.rows["stop_replica"])


@pytest.mark.parametrize("carry_out", ["apply_state", "stop_replica"])
async def test_request_for_an_ended_broker_epoch_is_abandoned(monkeypatch: pytest.MonkeyPatch, carry_out: str) -> None:
    async with replica_cluster(1) as cluster:
        manager, fence = cluster[1].replicas, cluster[1].services.fence
        request: Any = long_order(cluster)
        if carry_out == "stop_replica":
            assert (await cluster.call(cluster[1], request)).error_code == 0
            request = long_stop()
        request.broker_epoch = fence.broker_epoch
        original, done = getattr(manager, carry_out), 0

        def registers_again(*arguments: Any, **named: Any) -> Any:
            nonlocal done
            done += 1
            if done == 1:
                fence.register(fence.broker_epoch + 1)
            return original(*arguments, **named)

        monkeypatch.setattr(manager, carry_out, registers_again)
        assert (await cluster.call(cluster[1], request)).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert done == ROWS_AT_ONCE


async def test_follower_starts_fetching_all_partitions_of_a_request_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch must not be interrupted after its first ten partitions."""
    async with replica_cluster(2) as cluster:
        order = long_order(cluster, replicas=(1, 2))
        await cluster.call(cluster[1], order)
        asked: list[int] = []
        fetchers = cluster[2].replicas.fetchers
        following = asyncio.create_task(cluster.call(cluster[2], order))
        await until(lambda: 1 in fetchers._by_leader)
        session = fetchers._by_leader[1]._session
        request = session.request

        def noted(*arguments: Any, **named: Any) -> Any:
            asked.append(len(session))
            return request(*arguments, **named)

        monkeypatch.setattr(session, "request", noted)
        await following
        await until(lambda: bool(asked))
        assert asked[0] == COUNT


def test_stale_controller_and_broker_epochs_are_refused() -> None:
    fence = ControllerFence()
    fence.register(20)
    fence.admit(controller_epoch=3, broker_epoch=20)
    for controller_epoch, broker_epoch, code in [
        (2, 20, ErrorCode.STALE_CONTROLLER_EPOCH),
        (4, 19, ErrorCode.STALE_BROKER_EPOCH),
    ]:
        with pytest.raises(KafkaError) as refused:
            fence.admit(controller_epoch=controller_epoch, broker_epoch=broker_epoch)
        assert refused.value.code is code
    assert fence.controller_epoch == 3, "what is refused counts for nothing"


def test_missing_or_later_broker_epoch_is_admitted_with_its_controller_epoch() -> None:
    fence = ControllerFence()
    fence.register(20)
    fence.admit(controller_epoch=3, broker_epoch=-1)
    fence.admit(controller_epoch=5, broker_epoch=21)
    with pytest.raises(KafkaError):
        fence.admit(controller_epoch=4, broker_epoch=21)


async def test_requests_wait_only_for_a_pending_registration() -> None:
    fence = ControllerFence()
    await asyncio.wait_for(fence.wait_registered(), 60)
    fence.await_registration()
    waiting = asyncio.ensure_future(fence.wait_registered())
    await asyncio.sleep(0)
    assert not waiting.done()
    fence.register(7)
    await asyncio.wait_for(waiting, 60)
    assert fence.broker_epoch == 7
