"""The front of a cluster of processes that this process has launched."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from anabranch.control.front.agent_client import AgentClient, open_http
from anabranch.control.front.front import Front
from anabranch.control.front.process_actions import ProcessActions
from anabranch.protocol.host_port import format_host_port

if TYPE_CHECKING:
    from anabranch.cluster.process_registry import LauncherSocket
    from anabranch.cluster.processes import ProcessCluster


@asynccontextmanager
async def launched_front(cluster: ProcessCluster, launcher: LauncherSocket) -> AsyncIterator[Front]:
    """The front of a running cluster whose nodes have agents; the block begins when all of them have answered."""

    def servers() -> str:
        addresses = [cluster.inter_broker_address(one) for one in cluster.brokers]
        return ",".join(format_host_port(host, port) for host, port in addresses)

    links = cluster.zookeeper_links
    async with contextlib.AsyncExitStack() as stack:
        if links is not None:
            stack.callback(links.heal_all)  # nodes need ZooKeeper to stop in order
        http = await stack.enter_async_context(open_http())

        def client_of(node_id: int) -> AgentClient:
            agent = cluster.nodes[node_id].agent
            assert agent is not None, "the nodes of this cluster have agents"
            return AgentClient(http, agent.url, agent.token)

        front = Front(
            cluster.nodes,
            client_of,
            lambda publish: ProcessActions(cluster.nodes, launcher.start, cluster.zookeeper, publish, links),
            servers,
            cluster.security,
        )
        await stack.enter_async_context(front)
        for node_id in cluster.nodes:
            await front.wait_up(node_id)
        yield front
