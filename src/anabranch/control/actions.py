"""Actions on the nodes of a cluster in this process: kill, stop, start, freeze, and their ZooKeeper sessions.

Each action is an event. Killing a node ends its ZooKeeper session at once, and the controller elects new leaders.
Stopping it moves its leaderships first. Expiring a session leaves the node running: a leader that does not know yet
that it was replaced. A suspended node cannot reach ZooKeeper, and its session expires if that lasts. A frozen node does
nothing and keeps its connections; its session expires likewise.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from anabranch.clock.process import CannotFreeze
from anabranch.control import state
from anabranch.controller.zk.memory import Link, MemorySession
from anabranch.faults.fault_actions import session_of

if TYPE_CHECKING:
    from anabranch.cluster.in_process import Cluster
    from anabranch.control.events import Events


class ActionRefused(Exception):
    """The action is impossible now; the message says why."""

    details: Mapping[str, Any] = MappingProxyType({})
    """Fields of the response beside `error`."""


class UnknownNode(ActionRefused):
    """The node, or another thing that a request names, does not exist."""


@contextlib.asynccontextmanager
async def all_locked(locks: Iterable[asyncio.Lock]) -> AsyncIterator[None]:
    """A block that holds all these locks, entered in their order."""
    async with contextlib.AsyncExitStack() as stack:
        for lock in locks:
            await stack.enter_async_context(lock)
        yield


class Actions:
    """Executes actions on one cluster, one at a time for each node."""

    def __init__(self, cluster: Cluster, events: Events) -> None:
        self._cluster = cluster
        self._events = events
        self._turns = {node_id: asyncio.Lock() for node_id in cluster.node_ids}

    async def kill(self, node_id: int) -> state.NodeRow:
        """Kill a node abruptly. Raises UnknownNode, or ActionRefused if it is not running."""
        async with self._turn(node_id):
            self._running(node_id)
            self._events.publish("node killed", node=node_id)
            await self._cluster.crash_broker(node_id)
            return state.node_row(self._cluster, node_id)

    async def stop(self, node_id: int) -> state.NodeRow:
        """Stop a node in order. Raises UnknownNode, or ActionRefused if it is not running."""
        async with self._turn(node_id):
            self._running(node_id)
            self._events.publish("node stopping", node=node_id)
            await self._cluster.stop_broker(node_id)
            self._events.publish("node stopped", node=node_id)
            return state.node_row(self._cluster, node_id)

    async def start(self, node_id: int) -> state.NodeRow:
        """Start a stopped node. Raises UnknownNode, or ActionRefused if it is running, or if its port is taken."""
        async with self._turn(node_id):
            if node_id in self._cluster.nodes:
                raise ActionRefused(f"node {node_id} is already running")
            if frozen := [str(one) for one in self._cluster.nodes if self._cluster.is_frozen(one)]:
                raise ActionRefused(
                    f"node {node_id} cannot become ready while node {', '.join(frozen)} is frozen; thaw it first"
                )
            self._events.publish("node starting", node=node_id)
            try:
                await self._cluster.start_broker(node_id)
            except OSError as error:
                raise ActionRefused(f"node {node_id} does not start: {error.strerror or error}") from None
            self._events.publish("node started", node=node_id)
            return state.node_row(self._cluster, node_id)

    def shift_clock(self, node_id: int, offset_ms: int) -> state.NodeRow:
        """Set a node's time of day ahead or behind, also after restarts. Raises UnknownNode."""
        self._require_node(node_id)
        self._events.publish("clock shifted", node=node_id, offset_ms=offset_ms)
        self._cluster.shift_clock(node_id, offset_ms)
        return state.node_row(self._cluster, node_id)

    def expire_session(self, node_id: int) -> state.NodeRow:
        """Expire a node's ZooKeeper session; the node runs on. Raises UnknownNode, or ActionRefused if it has none."""
        session = self._session(node_id)
        self._events.publish("session expired", node=node_id)
        self._cluster.zookeeper.expire(session)
        return state.node_row(self._cluster, node_id)

    def suspend_session(self, node_id: int) -> state.NodeRow:
        """Disconnect a node from ZooKeeper until `resume_session`. Raises UnknownNode or ActionRefused."""
        session = self._session(node_id)
        if session.link is Link.SUSPENDED:
            raise ActionRefused(f"node {node_id} is already cut off from ZooKeeper")
        self._events.publish("session suspended", node=node_id)
        session.lose_connection()
        return state.node_row(self._cluster, node_id)

    def delay_session(self, node_id: int, delay_ms: int) -> state.NodeRow:
        """Delay what a node sends to ZooKeeper and gets from it, until `resume_session`.

        Raises UnknownNode or ActionRefused.
        """
        session = self._session(node_id)
        self._events.publish("session delayed", node=node_id, delay_ms=delay_ms)
        session.slow_down(delay_ms / 1000)
        return state.node_row(self._cluster, node_id)

    def resume_session(self, node_id: int) -> state.NodeRow:
        """Reconnect a node to ZooKeeper, without delay; its session may have expired.

        Raises UnknownNode or ActionRefused.
        """
        self._require_node(node_id)
        node = self._cluster.nodes.get(node_id)
        session = None if node is None else node.services.session
        if not isinstance(session, MemorySession) or (session.link is not Link.SUSPENDED and not session.delay_s):
            raise ActionRefused(f"node {node_id} is not cut off from ZooKeeper, and nothing delays it")
        self._events.publish("session resumed", node=node_id)
        session.slow_down(0)
        session.reconnect()
        return state.node_row(self._cluster, node_id)

    def freeze(self, node_id: int) -> state.NodeRow:
        """Freeze a node, as SIGSTOP does. Raises UnknownNode, or ActionRefused if it is stopped or frozen."""
        self._require_node(node_id)
        self._running(node_id)
        if self._cluster.is_frozen(node_id):
            raise ActionRefused(f"node {node_id} is already frozen")
        self._events.publish("node frozen", node=node_id)
        try:
            self._cluster.freeze_broker(node_id)
        except CannotFreeze as error:
            raise ActionRefused(str(error)) from None
        return state.node_row(self._cluster, node_id)

    def thaw(self, node_id: int) -> state.NodeRow:
        """Resume a frozen node. Raises UnknownNode, or ActionRefused if it is not frozen."""
        self._require_node(node_id)
        if not self._cluster.is_frozen(node_id):
            raise ActionRefused(f"node {node_id} is not frozen")
        self._events.publish("node thawed", node=node_id)
        self._cluster.thaw_broker(node_id)
        return state.node_row(self._cluster, node_id)

    @contextlib.asynccontextmanager
    async def exclusively(self) -> AsyncIterator[None]:
        """A block during which no other action runs on any node."""
        async with all_locked(self._turns.values()):
            yield

    def _turn(self, node_id: int) -> asyncio.Lock:
        self._require_node(node_id)
        return self._turns[node_id]

    def _require_node(self, node_id: int) -> None:
        if node_id not in self._turns:
            raise UnknownNode(f"there is no node {node_id}: there are {', '.join(map(str, self._turns))}")

    def _running(self, node_id: int) -> None:
        if node_id not in self._cluster.nodes:
            raise ActionRefused(f"node {node_id} is not running")

    def _session(self, node_id: int) -> MemorySession:
        self._require_node(node_id)
        self._running(node_id)
        session = session_of(self._cluster, node_id)
        if session is None:
            raise ActionRefused(f"node {node_id} has no session")
        return session
