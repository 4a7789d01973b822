"""Random failures of three brokers: records acknowledged with acks=all are in every log, once and in order.

Brokers die without notice and come back with their files; leaders are elected from the ISR only, and some brokers
hear of it late, so that two of them believe for a while that they lead. Sources of a loss this has to catch: a high
watermark that runs ahead, an ISR that admits a stale replica, a tail that is not truncated.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.broker.replication.replica_cluster import (
    ReplicaCluster,
    batch,
    log_values,
    produce_request,
    replica_cluster,
    until,
)
from tests.cases import costly

STEPS = 60


class Failures:
    """One run: the cluster, what was acknowledged, and the dice."""

    def __init__(self, cluster: ReplicaCluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.acknowledged: list[str] = []
        self.next_value = 0
        self.files: dict[int, object] = {}

    async def step(self) -> None:
        action = self.rng.choices(
            [self.produce, self.elect, self.split_brain, self.crash, self.come_back], weights=[10, 2, 2, 1, 2]
        )[0]
        await action()

    async def produce(self) -> None:
        """Produce to any broker that believes to lead: some records are lost, and must not be acknowledged."""
        for broker in list(self.cluster.brokers.values()):
            if not broker.replicas.partition("t", 0).is_leader:
                continue
            value = f"{self.next_value}"
            self.next_value += 1
            response = await self.cluster.call(broker, produce_request(batch(value), -1, timeout_ms=30))
            if response.responses[0].partition_responses[0].error_code == 0:
                self.acknowledged.append(value)

    async def elect(self) -> None:
        """Elect a new leader from the ISR, and tell all live brokers."""
        await self._elect(None)

    async def split_brain(self) -> None:
        """Elect a new leader, and tell only one other broker at once."""
        await self._elect(self.rng.choice(sorted(self.cluster.brokers)))

    async def _elect(self, only: int | None) -> None:
        cluster = self.cluster
        candidates = [one for one in cluster.assigned["t", 0].isr if one in cluster.brokers]
        if not candidates:
            return
        leader = self.rng.choice(candidates)
        # Kafka's rule: the dead leave the ISR, unless nobody would be left.
        await cluster.lead(leader, isr=tuple(candidates), only=None if only is None else {leader, only})

    async def crash(self) -> None:
        cluster = self.cluster
        if len(cluster.brokers) > 1:
            victim = self.rng.choice(sorted(cluster.brokers))
            self.files[victim] = await cluster.kill(victim)
            await self._elect(None)

    async def come_back(self) -> None:
        if self.files:
            broker_id = self.rng.choice(sorted(self.files))
            await self.cluster.start(broker_id, self.files.pop(broker_id))  # type: ignore[arg-type]
            await self._elect(None)
            await self.cluster.tell("t", 0)

    async def heal(self) -> None:
        while self.files:
            await self.come_back()
        await self.elect()
        cluster = self.cluster
        assert (await cluster.produce(cluster.assigned["t", 0].leader, batch("healed"))).error_code == 0
        await until(lambda: sorted(cluster.assigned["t", 0].isr) == [1, 2, 3])
        leader = cluster.partition(cluster.assigned["t", 0].leader)
        await until(lambda: leader.high_watermark == leader.log.log_end_offset)


@pytest.mark.parametrize("seed", [*range(5), *costly(range(5, 12))])
async def test_random_failures_lose_no_acknowledged_record(seed: int) -> None:
    async with replica_cluster(replica_lag_time_max_ms=100) as cluster:
        failures = Failures(cluster, seed)
        await cluster.lead(1)
        async with asyncio.timeout(60):
            for _ in range(STEPS):
                await failures.step()
            await failures.heal()
        logs = [log_values(cluster.partition(broker_id)) for broker_id in (1, 2, 3)]
        assert logs[0] == logs[1] == logs[2]
        kept = [value for value in logs[0] if value in set(failures.acknowledged)]
        assert kept == failures.acknowledged
        assert len(set(logs[0])) == len(logs[0])
