"""A controller with real surroundings: in-memory ZooKeeper, brokers over TCP, its own task."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anabranch.controller import topic_admin
from anabranch.controller.controller import Controller, ControllerEvent, ControllerSettings
from anabranch.controller.model import LeaderAndIsr, TopicBody
from anabranch.controller.placement import assign_replicas
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.controller.zk.session import ZkSession
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tests.controller.fake_broker import FakeBroker

PATIENCE_S = 60


@dataclass
class TestCluster:
    __test__ = False
    zookeeper: Any = field(default_factory=MemoryZooKeeper)
    brokers: dict[int, FakeBroker] = field(default_factory=dict)
    controllers: list[Controller] = field(default_factory=list)
    events: list[ControllerEvent] = field(default_factory=list)
    client: ZkSession = None  # type: ignore[assignment]
    sessions: list[ZkSession] = field(default_factory=list)

    @classmethod
    async def start(cls, brokers: int = 3, **settings: Any) -> TestCluster:
        cluster = cls()
        await cluster.begin(brokers, **settings)
        return cluster

    async def begin(self, brokers: int, **settings: Any) -> None:
        self.client = await self.connect()
        for broker_id in range(1, brokers + 1):
            await self.add_broker(broker_id)
        await self.add_controller(**settings)
        await self.until(lambda: self.active is not None)

    async def connect(self) -> ZkSession:
        session: ZkSession = await self.zookeeper.connect()
        self.sessions.append(session)
        return session

    async def add_broker(self, broker_id: int) -> FakeBroker:
        broker = FakeBroker(broker_id, await self.connect())
        self.brokers[broker_id] = await broker.start()
        return broker

    async def add_controller(
        self, node_id: int = 100, *, failpoint: Callable[[str], None] | None = None, **settings: Any
    ) -> Controller:
        settings = {
            "retry_backoff_ms": 5,
            "preferred_election_delay_ms": 1,
            "drained_check_interval_ms": 3_600_000,
            **settings,
        }
        session = await self.connect()
        controller = Controller(
            session,
            ControllerSettings(node_id=node_id, **settings),
            rng=random.Random(node_id),
            listener=self.events.append,
            failpoint=failpoint,
        )
        controller.session_under_test = session  # type: ignore[attr-defined]
        self.controllers.append(controller)
        await controller.start()
        return controller

    @property
    def active(self) -> Controller | None:
        return next((one for one in self.controllers if one.active), None)

    @property
    def controller(self) -> Controller:
        active = self.active
        assert active is not None
        return active

    async def stop(self) -> None:
        for controller in self.controllers:
            await controller.stop()
        for broker in self.brokers.values():
            await broker.stop()
        for session in self.sessions:
            await session.close()

    async def create_topic(
        self, name: str = "t", partitions: int = 4, replication: int = 2, **configs: str
    ) -> dict[int, list[int]]:
        assignment = assign_replicas(sorted(self.brokers), partitions, replication, start_index=0, shift=0)
        configs = {key.replace("_", "."): value for key, value in configs.items()}
        await topic_admin.create_topic(
            self.client, name=name, topic_id=name.encode()[:16].ljust(16, b"."), assignment=assignment, configs=configs
        )
        await self.until_states(name, lambda states: len(states) == partitions)
        return assignment

    async def resize(self, name: str, count: int, *, allow_shrink: bool = True, timeout_ms: int = 10_000) -> Any:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None, allow_shrink=allow_shrink)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=False)
        return (await self.controller.create_partitions(request)).results[0]

    async def topic(self, name: str) -> TopicBody:
        return znodes.decode_topic("", (await self.client.get(paths.topic(name)))[0])

    async def states(self, name: str) -> dict[int, LeaderAndIsr]:
        found = {}
        if await self.client.exists(paths.partitions(name)) is None:
            return {}
        for index in await self.client.children(paths.partitions(name)):
            path = paths.partition_state(name, int(index))
            if await self.client.exists(path) is not None:
                found[int(index)] = znodes.decode_partition_state(path, (await self.client.get(path))[0])
        return found

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def until_states(self, name: str, condition: Callable[[dict[int, LeaderAndIsr]], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition(await self.states(name)):  # noqa: ASYNC110
                await asyncio.sleep(0)

    def seen(self, kind: str) -> list[ControllerEvent]:
        return [event for event in self.events if event.kind == kind]
