"""One node with its control agent, on ZooKeeper in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.effective_config import with_properties
from anabranch.broker.node.app import Node
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.cli.node import agent_routes
from anabranch.clients.clock import time_of_day_clock
from anabranch.clients.connection import Connection
from anabranch.control.agent import ControlledNode
from anabranch.control.client import ControlClient
from anabranch.control.endpoint import Address, ControlEndpoint
from anabranch.control.lease import LEASE_S
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic

SMALL = {
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "controlled.shutdown.enable": "false",
}


@dataclass(frozen=True)
class RunningAgent:
    """A node that runs, its agent, and what a client needs."""

    node: Node
    agent: ControlledNode
    url: str
    zookeeper: MemoryZooKeeper

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.node.port}"

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One request, made in a thread, as of another process."""
        return await asyncio.to_thread(ControlClient(self.url).ask, method, path, body)

    async def metadata_error(self) -> int:
        """What the node answers about the topic `t`."""
        connection = await Connection.open("127.0.0.1", self.node.port, client_id="test")
        try:
            request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
            response = await connection.call(request)
        finally:
            await connection.close()
        return next(int(one.error_code) for one in response.topics if one.name == "t")


@asynccontextmanager
async def running_agent(
    node_id: int = 1,
    roles: tuple[str, ...] = ("broker", "controller"),
    journal: int = 0,
    frames: bool = False,
    lease_s: float = LEASE_S,
    zookeeper: MemoryZooKeeper | None = None,
    kafka: str = "",
    watched: bool = True,
    **properties: str,
) -> AsyncIterator[RunningAgent]:
    """A node with its agent, wired as `anabranch node --control` does it; `watched=False`: as without the option."""
    settings = with_properties(
        BrokerSettings(node_id=node_id, port=0, roles=roles, **({"kafka_version": kafka} if kafka else {})),
        {**SMALL, **{name.replace("_", "."): value for name, value in properties.items()}},
    )
    zookeeper = zookeeper or MemoryZooKeeper()
    endpoint = ControlEndpoint(Address("127.0.0.1", 0), "", journal)
    agent = ControlledNode(settings, endpoint.url, journal, frames=frames, lease_s=lease_s)
    node = Node(
        settings,
        connect=lambda: zookeeper.connect(6000),
        files=MemoryFiles(),
        rng=random.Random(1),
        clock_ms=time_of_day_clock(),
        failpoint=agent.on_step,
        in_turn=agent.awaits_steps,
    )
    node.on_joined(agent.register)
    await node.start()
    try:
        if watched:
            agent.watch(node)
        if settings.is_broker:
            assert await node.ready(20000)
        async with endpoint.serve(agent, agent_routes):
            yield RunningAgent(node, agent, endpoint.url, zookeeper)
    finally:
        await node.stop()
        await agent.close()
