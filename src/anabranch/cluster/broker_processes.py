"""The processes of a cluster's brokers in one event loop: a broker is frozen, thawed or killed without its cooperation.

The ZooKeeper session of a frozen broker sends nothing either, and expires if the freeze lasts. Only a cluster with its
own clock has processes (`clock.process`); without one a broker cannot be frozen, and a killed one still ends its tasks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from anabranch.clock.process import NO_CLOCK, CannotFreeze, Process
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper

if TYPE_CHECKING:
    from anabranch.broker.node.app import Node


class BrokerProcesses:
    """The processes of the running brokers."""

    def __init__(self) -> None:
        self._by_node: dict[Node, Process] = {}

    def __bool__(self) -> bool:
        return bool(self._by_node)

    def __contains__(self, node: object) -> bool:
        return node in self._by_node

    async def start(self, node: Node) -> None:
        """Start a node in a process of its own; stop it if the start was cancelled after it completed."""
        process = Process.new()
        if process is None:
            await node.start()
            return
        starting = asyncio.get_running_loop().create_task(node.start(), context=process.context)
        try:
            await starting
        except asyncio.CancelledError:
            if starting.done() and not starting.cancelled() and starting.exception() is None:
                await node.stop(controlled=False)
            raise
        self._by_node[node] = process

    def forget(self, *nodes: Node) -> None:
        """Forget nodes that are stopped."""
        for node in nodes:
            self._by_node.pop(node, None)

    def is_frozen(self, node: Node) -> bool:
        """Whether a node is frozen."""
        process = self._by_node.get(node)
        return process is not None and process.frozen

    def freeze(self, node: Node) -> None:
        """Stop a node at once, as SIGSTOP does. Raises CannotFreeze if it has no process."""
        process = self._by_node.get(node)
        if process is None:
            raise CannotFreeze(NO_CLOCK)
        process.freeze()
        if isinstance(session := node.services.session, MemorySession):
            process.sibling().run(session.stall)

    def thaw(self, node: Node) -> None:
        """Resume a frozen node; no effect if it is not frozen."""
        process = self._by_node.get(node)
        if process is None or not process.frozen:
            return
        if isinstance(session := node.services.session, MemorySession):
            process.sibling().run(session.unstall)
        process.thaw()

    def kill(self, node: Node, zookeeper: MemoryZooKeeper) -> None:
        """Close a node's connections and end its ZooKeeper session, as a killed process does; then stop it."""
        session, process = node.services.session, self._by_node.pop(node, None)
        if process is not None:
            process.freeze()  # it sends nothing from here on
            process.drop_sockets()
        if isinstance(session, MemorySession) and zookeeper.holds(session):
            zookeeper.expire(session)
        if process is not None:
            process.thaw()
