"""The front of a cluster of processes that this process has launched."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.control.front.agent_client import AgentClient, open_http
from anabranch.control.front.front import Front
from anabranch.control.front.process_actions import ProcessActions

if TYPE_CHECKING:
    from anabranch.clients.security import Security
    from anabranch.cluster.node_process import NodeProcess
    from anabranch.cluster.process_snapshots import ProcessSnapshots
    from anabranch.cluster.zookeeper_links import ZooKeeperLinks


class LaunchedProcesses(Protocol):
    """The interface of a running cluster of processes whose nodes have agents."""

    @property
    def nodes(self) -> Mapping[int, NodeProcess]:
        """All nodes by id, running or not."""

    @property
    def zookeeper(self) -> str:
        """The connect string of the ensemble, without the launcher's ports."""

    @property
    def zookeeper_links(self) -> ZooKeeperLinks | None:
        """The nodes' links to ZooKeeper."""

    @property
    def inter_broker_servers(self) -> str:
        """The inter-broker addresses of all brokers."""

    @property
    def security(self) -> Security | None:
        """The credentials there."""


@asynccontextmanager
async def launched_front(
    cluster: LaunchedProcesses,
    start: Callable[[int], Awaitable[Any]],
    snapshots: ProcessSnapshots | None = None,
) -> AsyncIterator[Front]:
    """The front of a running cluster; the block begins when all agents have answered.

    Args:
        cluster: The cluster.
        start: Starts an ended node, and returns when it is ready. Raises OrderRefused.
        snapshots: The cluster's snapshots, if it can take them.
    """
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
            lambda publish: ProcessActions(cluster.nodes, start, cluster.zookeeper, publish, links),
            lambda: cluster.inter_broker_servers,
            cluster.security,
            snapshots,
        )
        await stack.enter_async_context(front)
        for node_id in cluster.nodes:
            await front.wait_up(node_id)
        yield front
