"""Configurations on the simulated loop: after any failures, all brokers have the set values.

A change may be written and never announced (its writer died), announced while a broker is dead, frozen or between two
sessions, or be one of two at the same moment. Afterwards every log, every partition and every broker's settings must be
those that stand in ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from anabranch import Admin, NewTopic
from anabranch.broker.config.config_changes import DEFAULT_ENTITY
from anabranch.clients.config_admin import ALL_BROKERS
from anabranch.controller.zk import paths, znodes
from anabranch.protocol.errors import KafkaError
from tests.sim.cluster import SimCluster
from tests.sim.loop import Process

CHANGES = 25


class Changing:
    """A client that changes things while brokers suffer."""

    def __init__(self, seed: int) -> None:
        self.cluster = SimCluster(seed, spares=1)
        self.rng = self.cluster.rng("changes")
        self.done: Counter[str] = Counter()

    async def run(self) -> None:
        cluster = self.cluster
        await cluster.start()
        await self.as_client("maker", self.make())
        suffering = asyncio.ensure_future(self.suffer())
        await asyncio.gather(*(self.as_client(f"admin-{n}", self.change(n)) for n in (1, 2)))
        suffering.cancel()
        cluster.end_faults()
        assert await cluster.until(lambda: all(one.up for one in cluster.machines.values()), 30, "all are up")
        assert await cluster.until(self.agree, 30, "all agree"), self.difference()

    async def as_client(self, name: str, work: Any) -> None:
        await self.cluster.loop.spawn(Process(f"{name}.1", name), work, name)

    async def make(self) -> None:
        async with Admin(self.cluster.bootstrap, rng=self.cluster.rng("maker")) as admin:
            await admin.create_topics([NewTopic(name="t", assignments={0: [1, 2, 3]})])
            await admin.wait_for_topic("t", replicas=3)

    async def change(self, number: int) -> None:
        rng = self.cluster.rng(f"admin-{number}")
        async with Admin(self.cluster.bootstrap, request_timeout_ms=20000, rng=rng) as admin:
            for _ in range(CHANGES):
                name, text = rng.choice(["retention.ms", "max.message.bytes", "segment.ms"]), str(rng.randrange(1, 999))
                try:
                    if rng.random() < 0.6:
                        await admin.alter_configs("t", changes={name: text})
                    else:
                        name = rng.choice(["log.retention.bytes", "message.max.bytes", "log.cleaner.backoff.ms"])
                        await admin.alter_configs(broker=ALL_BROKERS, changes={name: text})
                    self.done["changed"] += 1
                except (KafkaError, ConnectionError, TimeoutError):
                    self.done["unknown"] += 1
                await asyncio.sleep(rng.uniform(0, 0.4))

    async def suffer(self) -> None:
        cluster, rng = self.cluster, self.rng
        while True:
            await asyncio.sleep(rng.uniform(0.1, 0.8))
            victim = rng.choice(cluster.brokers).node_id
            what = rng.choice(["kill", "expire", "expire", "freeze"])
            self.done[what] += 1
            if what == "kill":
                cluster.crash(victim)
                await asyncio.sleep(rng.uniform(0, 1))
                cluster.boot(victim)
            elif what == "expire":
                cluster.expire_session(victim)
            else:
                await cluster.freeze_for(victim, rng.uniform(0, 1))

    def set_for(self, entity: str) -> dict[str, str]:
        node = self.cluster.zookeeper.tree.nodes.get(paths.config(entity))
        return znodes.decode_config("", node.data) if node is not None else {}

    def agree(self) -> bool:
        return not self.difference()

    def difference(self) -> list[str]:
        topic, common = self.set_for("topics/t"), self.set_for(f"brokers/{DEFAULT_ENTITY}")
        wrong = []
        for machine in self.cluster.brokers:
            partition = self.cluster.replica(machine.node_id, "t", 0)
            if partition is None or machine.node is None:
                return [f"{machine.host} holds nothing"]
            settings, log = machine.node.services.settings, partition.log.settings
            for name, text in common.items():
                if str(getattr(settings, name.replace(".", "_"))) != text:
                    wrong.append(f"{machine.host}: {name} is not {text}")
            for name, text in {"max.message.bytes": common.get("message.max.bytes", ""), **topic}.items():
                if text and str(getattr(log, name.replace(".", "_"))) != text:
                    wrong.append(f"{machine.host}: {name} of t is not {text}")
        return wrong


@pytest.mark.parametrize("seed", range(6))
def test_all_brokers_converge_to_altered_configs(seed: int) -> None:
    run = Changing(seed)
    run.cluster.loop.run(run.run())
    assert run.done["changed"] > CHANGES and not run.cluster.history.failures, run.done
    assert run.done["expire"] + run.done["kill"] + run.done["freeze"] > 3, "it was not that easy"
