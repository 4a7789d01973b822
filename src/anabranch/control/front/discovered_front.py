"""The front of a cluster without a launcher: it finds the agents of the nodes in ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from anabranch.cluster.control_socket import OrderRefused
from anabranch.cluster.process_registry import start_node
from anabranch.control.actions import ActionRefused
from anabranch.control.agent_address import read_addresses
from anabranch.control.front.agent_client import AgentClient, AgentUnreachable, open_http
from anabranch.control.front.discovered_node import DiscoveredNode
from anabranch.control.front.front import Front
from anabranch.control.front.process_actions import ProcessActions
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.controller.zk.session import ZkError
from anabranch.protocol.host_port import format_host_port

if TYPE_CHECKING:
    import ssl

    from anabranch.clients.security import Security
    from anabranch.control.agent_address import AgentAddress
    from anabranch.controller.zk.session import ZkSession

log: Final = logging.getLogger(__name__)

FIND_S: Final = 1.0
"""The pause between two looks for agents that have moved."""
LINK_S: Final = 15.0
"""How long all agents together may take to answer, and then to accept the front.

A lease of an earlier front ends in ten seconds. An agent loads its modules at the first request, which takes seconds on
a busy machine.
"""
POLL_S: Final = 0.05


class NoFront(Exception):
    """The front cannot control the cluster; the message says why."""


@asynccontextmanager
async def discovered_front(
    zookeeper: str, token: str, tls: ssl.SSLContext | None = None, security: Security | None = None
) -> AsyncIterator[Front]:
    """The front of the nodes that have an agent now; the block begins when all have accepted it.

    Args:
        zookeeper: The connect string of the ensemble.
        token: The token of all agents.
        tls: The TLS context for agents. If given, an agent without TLS gets no request, and so no token.
        security: The credentials at the first listeners of the nodes.

    Raises:
        NoFront: There is no agent, or one refuses this front.
    """
    hosts, _, chroot = zookeeper.partition("/")
    async with contextlib.AsyncExitStack() as stack:
        session = await open_kazoo(hosts, chroot=chroot)
        stack.push_async_callback(session.close)
        http = await stack.enter_async_context(open_http(tls))
        found = await read_addresses(session)
        if not found:
            raise NoFront(f"no node of {zookeeper} has a control agent; start nodes with `anabranch node --control`")
        clients = {one.node_id: AgentClient(http, one.url, token, tls_only=tls is not None) for one in found}
        answers = await asyncio.gather(*(_node_of(one, clients[one.node_id]) for one in found))
        nodes = {one.node_id: node for one, node in zip(found, answers, strict=True)}
        front = Front(
            nodes,
            clients.__getitem__,
            lambda publish: ProcessActions(nodes, lambda one: _start(one, zookeeper), zookeeper, publish),
            lambda: ",".join(format_host_port(one.host, one.port) for one in nodes.values()),
            security,
        )
        await stack.enter_async_context(front)
        await _all_linked(front)
        following = asyncio.create_task(_follow(session, nodes, clients))
        try:
            yield front
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def _node_of(address: AgentAddress, client: AgentClient) -> DiscoveredNode:
    try:
        (row,) = await client.ask("GET", "/v1/nodes", timeout_s=LINK_S)
    except (AgentUnreachable, ActionRefused) as error:
        raise NoFront(f"node {address.node_id}: {error}") from None
    return DiscoveredNode(address, row["host"], row["port"])


async def _start(node_id: int, zookeeper: str) -> None:
    """Have the launcher of a node start it again. Raises OrderRefused."""
    try:
        await start_node(node_id, zookeeper)
    except OrderRefused as error:
        raise OrderRefused(f"{error}; start node {node_id} as it was started before") from None


async def _all_linked(front: Front) -> None:
    """Wait until all agents have accepted the front. Raises NoFront."""
    try:
        async with asyncio.timeout(LINK_S):
            for link in front.links.values():
                await link.wait_up()
    except TimeoutError:
        reasons = [
            f"node {one.node_id}: {one.refusal or 'no answer'}" for one in front.links.values() if not one.reachable
        ]
        raise NoFront("; ".join(reasons)) from None


async def _follow(session: ZkSession, nodes: Mapping[int, DiscoveredNode], clients: Mapping[int, AgentClient]) -> None:
    """Follow agents to their new addresses."""
    while True:
        await asyncio.sleep(FIND_S)
        try:
            found = {one.node_id: one for one in await read_addresses(session)}
        except ZkError as error:
            log.warning("cannot look for agents: %s", error)
            continue
        for node_id, node in nodes.items():
            address = found.get(node_id)
            node.on_found(address)
            if address is not None:
                clients[node_id].url = address.url
        for node_id in found.keys() - nodes.keys():
            log.debug("node %d came after the front, which does not control it", node_id)
