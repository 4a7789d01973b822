"""The controller with real neighbours: ZooKeeper in process, brokers behind TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.controller.cluster import TestCluster


def run(scenario: Callable[[TestCluster], Awaitable[None]], brokers: int = 3, **settings: object) -> None:
    async def main() -> None:
        cluster = await TestCluster.start(brokers, **settings)
        try:
            await scenario(cluster)
        finally:
            await cluster.stop()

    asyncio.run(main())


def test_a_created_topic_is_led_and_told_to_everybody() -> None:
    async def scenario(cluster: TestCluster) -> None:
        assignment = await cluster.create_topic("t", partitions=4, replication=2)
        states = await cluster.states("t")
        assert {index: state.leader for index, state in states.items()} == {i: r[0] for i, r in assignment.items()}
        for broker in cluster.brokers.values():
            await broker.until(lambda broker=broker: len(broker.metadata.get("t", (0, {}))[1]) == 4)
            topic, _ = broker.metadata["t"]
            assert (topic.base, topic.generation, topic.initial_partition_count) == (1, 0, 4)
            assert {one.broker_epoch for one in broker.live_brokers.values()} == {
                other.epoch for other in cluster.brokers.values()
            }

    run(scenario)


def test_growing_and_shrinking_publish_generations() -> None:
    async def scenario(cluster: TestCluster) -> None:
        await cluster.create_topic("t", partitions=4, replication=2)
        for count in (6, 8, 5):
            result = await cluster.resize("t", count)
            assert (result.error_code, result.error_message) == (0, None)
        body = await cluster.topic("t")
        assert body.history == ((0, 4), (1, 6), (2, 8), (3, 5))
        assert (body.generation, body.undeleted_partition_count, body.plan) == (3, 5, None)
        states = await cluster.states("t")
        assert {index: state.generation for index, state in states.items()} == {
            index: body.lineage.class_generation(index) for index in range(8)
        }
        assert [index for index, state in states.items() if state.sealed] == [5, 6, 7]

    run(scenario)
