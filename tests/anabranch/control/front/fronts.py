"""A front on the agents of nodes in this process: no process can be killed, all else is real."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from anabranch import Admin, NewTopic
from anabranch.control.front.agent_client import AgentClient, open_http
from anabranch.control.front.front import Front
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.faults.rule import Rule
from tests.anabranch.control.agents import RunningAgent, running_agent


@dataclass
class LocalNode:
    """A node of this process, whose state as a process is only said."""

    node_id: int
    host: str = "127.0.0.1"
    port: int = 0
    running: bool = True
    frozen: bool = False
    refusal: str = ""


@dataclass
class RecordedActions:
    """Records the actions on nodes instead of carrying them out."""

    done: list[tuple[str, int]] = field(default_factory=list)
    frozen_on_request: set[int] = field(default_factory=set)
    suspended_on_request: set[int] = field(default_factory=set)
    can_suspend: bool = True
    delays_ms: dict[int, int] = field(default_factory=dict)
    by_rule: list[str] = field(default_factory=list)
    """The actions that are told to come from a rule."""

    async def delay_session(self, node_id: int, delay_ms: int) -> None:
        self.done.append(("delay_session", node_id))
        self.delays_ms[node_id] = delay_ms

    def delay_ms(self, node_id: int) -> int:
        return self.delays_ms.get(node_id, 0)

    def __getattr__(self, name: str) -> Any:
        async def act(node_id: int, *, by_rule: bool = False) -> None:
            self.done.append((name, node_id))
            if by_rule:
                self.by_rule.append(name)

        return act


@dataclass
class OnAgents:
    """A front, with the nodes that it controls."""

    front: Front
    nodes: dict[int, LocalNode]
    agents: dict[int, RunningAgent]
    actions: RecordedActions

    async def with_topic(self, name: str = "t", partitions: int = 1, replicas: int = 1) -> None:
        async with self.front.admin() as admin:
            await admin.create_topics([NewTopic(name=name, partitions=partitions, replication_factor=replicas)])
            await admin.wait_for_topic(name, replicas=replicas)

    async def metadata_error(self, node_id: int) -> int:
        """What one node answers about the topic `t`."""
        return await self.agents[node_id].metadata_error()

    async def hit_once(self, rule: Rule) -> None:
        """Add the rule `r` of requests for metadata, and let the first node meet it."""
        await self.with_topic()
        await self.front.rules.add(rule)
        await self.metadata_error(1)
        await self.front.rules.wait_hits("r", 1, 30)


@asynccontextmanager
async def front_of(agents: dict[int, RunningAgent], *, wait: bool = True) -> AsyncIterator[OnAgents]:
    """A front of running agents; the block begins when it is linked to all of them."""
    nodes = {one: LocalNode(one, port=agent.node.port) for one, agent in agents.items()}
    actions = RecordedActions()
    servers = ",".join(agent.bootstrap_servers for agent in agents.values())
    async with open_http() as http:
        acting: Any = actions
        clients = {one: AgentClient(http, agent.url, "") for one, agent in agents.items()}
        async with Front(nodes, clients.__getitem__, lambda publish: acting, lambda: servers) as front:
            for one in nodes if wait else ():
                await front.wait_up(one)
            yield OnAgents(front, nodes, agents, actions)


@asynccontextmanager
async def agents_of(count: int = 2, **options: Any) -> AsyncIterator[dict[int, RunningAgent]]:
    """Nodes of one cluster with their agents."""
    zookeeper = MemoryZooKeeper()
    async with contextlib.AsyncExitStack() as stack:
        found = {}
        for one in range(1, count + 1):
            agent = running_agent(one, zookeeper=zookeeper, **options)
            found[one] = await stack.enter_async_context(agent)
        async with Admin(found[1].bootstrap_servers) as admin:
            await admin.network.wait_for(lambda metadata: len(metadata.nodes) == count)
        yield found


@asynccontextmanager
async def on_agents(count: int = 2, **options: Any) -> AsyncIterator[OnAgents]:
    """A front on a cluster of nodes in this process."""
    async with agents_of(count, **options) as agents, front_of(agents) as on:
        yield on
