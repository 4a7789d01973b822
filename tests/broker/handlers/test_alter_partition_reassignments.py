"""Reassignments on real brokers under load: shown, completed, cancelled."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk import paths, znodes
from anabranch.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.anabranch.cluster.test_in_process import active_controller, ask, create, describe, fetch, leader, produce

pytestmark = pytest.mark.timeout(60)


async def reassign(cluster: Cluster, replicas: list[int] | None, at: int | None = None) -> tuple[int, int]:
    """Ask for partition 0 of topic `t` to move; top-level code and that of the partition."""
    row = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[row])])
    response = await ask(cluster, at or active_controller(cluster), request)
    rows = [one.error_code for topic in response.responses for one in topic.partitions]
    return response.error_code, rows[0] if rows else -1


async def moving(cluster: Cluster) -> list[tuple[list[int], list[int], list[int]]]:
    """What ListPartitionReassignments shows."""
    response = await ask(cluster, active_controller(cluster), ListPartitionReassignmentsRequest())
    assert response.error_code == 0
    return [(one.replicas, one.adding_replicas, one.removing_replicas) for t in response.topics for one in t.partitions]


async def others_than(cluster: Cluster) -> tuple[list[int], list[int]]:
    """The replicas of partition 0, and the brokers that have none."""
    replicas = list((await describe(cluster, "t")).partitions[0].replica_nodes)
    return replicas, [one for one in cluster.nodes if one not in replicas]


def hosts(cluster: Cluster) -> set[int]:
    """The brokers that have a log of partition 0."""
    return {
        number
        for number, node in cluster.nodes.items()
        if any((one.topic, one.index) == ("t", 0) for one in node.services.replicas.partitions())
    }


async def test_partition_is_reassigned_while_records_are_produced() -> None:
    async with Cluster(4) as cluster:
        await create(cluster, "t", replicas=2)
        before, after = await others_than(cluster)
        assert await produce(cluster, "t", b"before", at=await leader(cluster, "t")) == (0, 0)
        assert await reassign(cluster, after) == (0, 0)
        offset = 1
        while await moving(cluster):
            code, base = await produce(cluster, "t", b"during", at=await leader(cluster, "t"))
            if code == 0:
                assert base == offset
                offset += 1
        node = cluster.nodes[after[0]]
        assert await node.services.metadata.wait_until(
            lambda image: image.topics["t"].partitions[0].replicas == tuple(after), 60_000
        )
        row = (await describe(cluster, "t", after[0])).partitions[0]
        assert set(row.isr_nodes) == set(after) and row.leader_id in after
        assert await produce(cluster, "t", b"after", at=row.leader_id) == (0, offset)
        records = await fetch(cluster, "t", at=row.leader_id)
        assert b"before" in records and b"after" in records
        while hosts(cluster) != set(after):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (await produce(cluster, "t", b"x", at=before[0]))[0] == 6, "NOT_LEADER_OR_FOLLOWER"


async def test_stuck_reassignment_is_listed_and_can_be_cancelled() -> None:
    async with Cluster(4) as cluster:
        await create(cluster, "t", replicas=2)
        before, after = await others_than(cluster)
        target = next(one for one in after if one != active_controller(cluster))
        fetchers = cluster.nodes[target].services.replicas.fetchers
        fetchers.follow = lambda partition: None  # type: ignore[method-assign]  # its replicas never catch up
        assert await reassign(cluster, [before[0], target]) == (0, 0)
        assert await moving(cluster) == [([before[0], target, before[1]], [target], [before[1]])]
        data, _ = await cluster.nodes[target].session.get(paths.topic("t"))
        body = znodes.decode_topic("", data)
        assert (body.adding_replicas, body.removing_replicas) == ({0: (target,)}, {0: (before[1],)})
        assert await reassign(cluster, None) == (0, 0)
        assert await moving(cluster) == []
        while hosts(cluster) != set(before):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await reassign(cluster, None) == (0, 85)


async def test_reassignment_at_another_broker_is_not_controller() -> None:
    async with Cluster(2) as cluster:
        await create(cluster, "t", replicas=2)
        other = active_controller(cluster) % 2 + 1
        assert await reassign(cluster, [1], at=other) == (41, -1)
        response = await ask(cluster, other, ListPartitionReassignmentsRequest())
        assert response.error_code == 41
