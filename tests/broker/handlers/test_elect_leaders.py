"""ElectLeaders on real brokers: the response comes when the broker's metadata shows the leader."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.anabranch.cluster.test_in_process import active_controller, ask, create, describe, leader

pytestmark = pytest.mark.timeout(60)


async def elect(cluster: Cluster, *, unclean: bool = False, version: int = 2, at: int | None = None) -> tuple[int, int]:
    """Ask for partition 0 of topic `t`; top-level code and that of the partition."""
    partitions = [TopicPartitions(topic="t", partitions=[0])]
    request = ElectLeadersRequest(election_type=int(unclean), topic_partitions=partitions, timeout_ms=60_000)
    response = await ask(cluster, at or active_controller(cluster), request, version=version)
    return response.error_code, response.replica_election_results[0].partition_result[0].error_code


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_preferred_election_restores_the_preferred_leader(version: int) -> None:
    async with Cluster(3, properties={"auto.leader.rebalance.enable": "false"}) as cluster:
        await create(cluster, "t")
        assert await elect(cluster, version=version) == (0, 84)
        first = await leader(cluster, "t")
        await cluster.stop_broker(first)
        await cluster.start_broker(first)
        while len((await describe(cluster, "t")).partitions[0].isr_nodes) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await leader(cluster, "t") != first
        controller = active_controller(cluster)
        assert await elect(cluster, version=version) == (0, 0)
        assert (await describe(cluster, "t", controller)).partitions[0].leader_id == first


async def test_unclean_election_elects_an_out_of_sync_replica() -> None:
    async with Cluster(3) as cluster:
        await create(cluster, "t", replicas=2)
        row = (await describe(cluster, "t")).partitions[0]
        first, second = row.replica_nodes
        await cluster.crash_broker(second)
        while (await describe(cluster, "t", first)).partitions[0].isr_nodes != [first]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await cluster.crash_broker(first)
        await cluster.start_broker(second)
        witness = next(iter(cluster.nodes.values())).services.metadata
        assert await witness.wait_until(lambda image: second in image.brokers and first not in image.brokers, 60_000)
        controller = await settled_controller(cluster)
        assert await elect(cluster, at=controller) == (0, 80)
        assert await elect(cluster, unclean=True, at=controller) == (0, 0)
        assert (await describe(cluster, "t", controller)).partitions[0].leader_id == second


async def settled_controller(cluster: Cluster) -> int:
    """The active controller, once there is one."""
    while not any(node.controller is not None and node.controller.active for node in cluster.nodes.values()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return active_controller(cluster)


@pytest.mark.parametrize("version", [0, 2])
async def test_election_at_another_broker_is_not_controller(version: int) -> None:
    async with Cluster(2) as cluster:
        await create(cluster, "t", replicas=2)
        other = active_controller(cluster) % 2 + 1
        assert await elect(cluster, at=other, version=version) == (41 if version else 0, 41)
