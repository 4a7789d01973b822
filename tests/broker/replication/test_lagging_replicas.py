"""The check finds every lagging replica, and skips partitions that cannot have one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.broker.replication import lagging_replicas
from anabranch.broker.replication.lagging_replicas import LaggingReplicas
from anabranch.broker.replication.partition import Partition, ReplicaRules
from anabranch.broker.storage.log_append import append_as_leader
from anabranch.protocol.apis.alter_partition import PartitionDataResult
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication import partitions
from tests.broker.replication.partitions import state_of
from tests.broker.replication.replica_cluster import batch, replica_cluster, until

LAG_MS = 30_000


def hosted() -> Partition:
    return partitions.hosted(ReplicaRules(1, LAG_MS, lambda broker: 100 + broker))


def report(partition: Partition, replica: int, offset: int, now_ms: float) -> None:
    partition.record_fetch(replica, offset, 0, 100 + replica, now_ms)


def append(partition: Partition) -> None:
    append_as_leader(partition.log, batch("v"), leader_epoch=partition.leader_epoch, now_ms=1)


def admit(partition: Partition) -> None:
    """The controller has added broker 3, which lags."""
    change = partition._propose((1, 2, 3), 101)
    answer = PartitionDataResult(
        partition_index=0, error_code=0, leader_id=1, leader_epoch=5, isr=[1, 2, 3], partition_epoch=8
    )
    partition.on_answer(change, answer)


def proposed(stragglers: LaggingReplicas, now_ms: float) -> list[tuple[int, ...]]:
    found = stragglers.changes(lambda: now_ms, lambda: 101)
    return [one[1].isr for one in found if one is not None]


@pytest.mark.parametrize(
    ("event", "kept"),
    [
        (append, (1,)),
        (lambda one: report(one, 2, 0, 0.0), (1,)),
        (lambda one: one.become_leader(state_of(epoch=6, isr=(1, 2)), 0.0), (1,)),
        (admit, (1, 2)),
    ],
)
def test_partition_is_checked_after_each_event_that_may_cause_lag(
    event: Callable[[Partition], object], kept: object
) -> None:
    partition, stragglers = hosted(), LaggingReplicas()
    partition.become_leader(state_of(isr=(1, 2)), 0.0)
    append(partition)
    stragglers.add(partition)
    assert proposed(stragglers, 1.0) == [] and len(stragglers) == 1, "broker 2 has time to fetch"
    report(partition, 2, 1, 2.0)
    assert proposed(stragglers, 1e9) == [] and len(stragglers) == 0, "it has everything, if it never asks again"
    event(partition)
    assert len(stragglers) == 1
    assert proposed(stragglers, 1e9) == [kept]
    assert proposed(stragglers, 1e9) == [], "one proposal at a time"


def test_follower_proposes_no_shrink() -> None:
    partition, stragglers = hosted(), LaggingReplicas()
    stragglers.add(partition)
    partition.become_follower(state_of(2, isr=(1, 2)))
    assert proposed(stragglers, 1e9) == [] and len(stragglers) == 0
    partition.become_leader(state_of(epoch=6, isr=(1, 2)), 0.0)
    assert proposed(stragglers, 1e9) == [(1,)]


def test_refused_proposal_is_made_again() -> None:
    partition, stragglers = hosted(), LaggingReplicas()
    partition.become_leader(state_of(isr=(1, 2)), 0.0)
    stragglers.add(partition)
    ((_, change),) = filter(None, stragglers.changes(lambda: 1e9, lambda: 101))
    refused = PartitionDataResult(
        partition_index=0,
        error_code=ErrorCode.INELIGIBLE_REPLICA,
        leader_id=1,
        leader_epoch=5,
        isr=[1, 2],
        partition_epoch=7,
    )
    partition.on_answer(change, refused)
    assert proposed(stragglers, 1e9) == [(1,)]


def test_removed_partition_is_not_tracked() -> None:
    partition, stragglers = hosted(), LaggingReplicas()
    for restless in (True, False):
        stragglers.add(partition)
        if not restless:
            assert proposed(stragglers, 0.0) == []
        assert (len(stragglers), len(partition.listeners)) == (int(restless), int(not restless))
        stragglers.remove(partition)
        assert (len(stragglers), partition.listeners) == (0, {})


def test_check_of_many_partitions_yields_and_ignores_those_removed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lagging_replicas, "PARTITIONS_PER_STEP", 2)
    lagging, stragglers = [hosted() for _ in range(5)], LaggingReplicas()
    for one in lagging:
        one.become_leader(state_of(isr=(1, 2)), 0.0)
        append(one)
        stragglers.add(one)
    checked: list[int | None] = []
    for found in stragglers.changes(lambda: 1e9, lambda: 101):
        checked.append(None if found is None else lagging.index(found[0]))
        if checked[-2:] == [1, None]:
            stragglers.remove(lagging[3])
    assert checked == [None, None, 0, 1, None, 2, None, 4]


async def test_only_partitions_with_writes_are_checked() -> None:
    async with replica_cluster(2, replica_lag_time_max_ms=40) as cluster:
        for topic in "tuv":
            await cluster.lead(1, replicas=(1, 2), topic=topic)
        stragglers = cluster[1].replicas._stragglers
        await until(lambda: len(stragglers) == 0)
        await cluster.kill(2)
        await cluster.produce(1, batch("a"), topic="u", acks=1)
        await until(lambda: cluster.partition(1, "u").isr == (1,))
        assert [cluster.partition(1, topic).isr for topic in "tv"] == [(1, 2), (1, 2)]
        restless = {*stragglers._restless, *stragglers._changed}
        assert not restless & {cluster.partition(1, topic) for topic in "tv"}
