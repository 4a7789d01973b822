"""What may be done to a cluster in this process from outside; each deed is an event.

A node that is killed is gone without a word, and its ZooKeeper session with it: the controller elects other leaders at
once. One that is stopped hands its leaderships over first. A session that is expired ends for a node that runs on: a
leader that does not know yet that it is none. One that is suspended reaches ZooKeeper no more, and expires by itself if
that lasts. A node that is frozen does nothing at all, and keeps its connections: its session expires likewise.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from anabranch.control import state
from anabranch.controller.zk.memory import Link, MemorySession
from anabranch.faults.fault_actions import CannotFreeze, session_of

if TYPE_CHECKING:
    from anabranch.cluster.in_process import Cluster
    from anabranch.control.events import Events


class ActionRefused(Exception):
    """What was asked for cannot be done now; the message says why."""


class UnknownNode(ActionRefused):
    """What was asked for is not there."""


class Actions:
    """Does things to one cluster, one after the other for each node."""

    def __init__(self, cluster: Cluster, events: Events) -> None:
        self._cluster = cluster
        self._events = events
        self._turns = {node_id: asyncio.Lock() for node_id in cluster.node_ids}

    async def kill(self, node_id: int) -> dict[str, Any]:
        """End a node without a word. Unknown, or Impossible if it does not run."""
        async with self._turn(node_id):
            self._running(node_id)
            self._events.publish("node killed", node=node_id)
            await self._cluster.crash_broker(node_id)
            return state.node_row(self._cluster, node_id)

    async def stop(self, node_id: int) -> dict[str, Any]:
        """Stop a node in order. Unknown, or Impossible if it does not run."""
        async with self._turn(node_id):
            self._running(node_id)
            self._events.publish("node stopping", node=node_id)
            await self._cluster.stop_broker(node_id)
            self._events.publish("node stopped", node=node_id)
            return state.node_row(self._cluster, node_id)

    async def start(self, node_id: int) -> dict[str, Any]:
        """Start a node that does not run. Unknown, or Impossible if it runs."""
        async with self._turn(node_id):
            if node_id in self._cluster.nodes:
                raise ActionRefused(f"node {node_id} runs already")
            if frozen := [str(one) for one in self._cluster.nodes if self._cluster.is_frozen(one)]:
                raise ActionRefused(
                    f"node {node_id} would not be ready: node {', '.join(frozen)} is frozen and cannot learn of it; "
                    f"thaw it first"
                )
            self._events.publish("node starting", node=node_id)
            await self._cluster.start_broker(node_id)
            self._events.publish("node started", node=node_id)
            return state.node_row(self._cluster, node_id)

    def expire_session(self, node_id: int) -> dict[str, Any]:
        """End a node's ZooKeeper session; the node runs on. Unknown, or Impossible if it has none."""
        session = self._session(node_id)
        self._events.publish("session expired", node=node_id)
        self._cluster.zookeeper.expire(session)
        return state.node_row(self._cluster, node_id)

    def suspend_session(self, node_id: int) -> dict[str, Any]:
        """Cut a node off from ZooKeeper until `resume_session`. Unknown, or Impossible if it has no session."""
        session = self._session(node_id)
        if session.link is Link.SUSPENDED:
            raise ActionRefused(f"node {node_id} is cut off from ZooKeeper already")
        self._events.publish("session suspended", node=node_id)
        self._cluster.zookeeper.suspend(session)
        return state.node_row(self._cluster, node_id)

    def resume_session(self, node_id: int) -> dict[str, Any]:
        """Let a node reach ZooKeeper again; its session may have expired meanwhile. Unknown, or Impossible."""
        self._known(node_id)
        node = self._cluster.nodes.get(node_id)
        session = None if node is None else node.services.session
        if not isinstance(session, MemorySession) or session.link is not Link.SUSPENDED:
            raise ActionRefused(f"node {node_id} is not cut off from ZooKeeper")
        self._events.publish("session resumed", node=node_id)
        self._cluster.zookeeper.resume(session)
        return state.node_row(self._cluster, node_id)

    def freeze(self, node_id: int) -> dict[str, Any]:
        """Stop a node in the middle of what it does. Unknown, or Impossible if it does not run, or is frozen."""
        self._known(node_id)
        self._running(node_id)
        if self._cluster.is_frozen(node_id):
            raise ActionRefused(f"node {node_id} is frozen already")
        self._events.publish("node frozen", node=node_id)
        try:
            self._cluster.freeze_broker(node_id)
        except CannotFreeze as error:
            raise ActionRefused(str(error)) from None
        return state.node_row(self._cluster, node_id)

    def thaw(self, node_id: int) -> dict[str, Any]:
        """Let a frozen node go on. Unknown, or Impossible if it is not frozen."""
        self._known(node_id)
        if not self._cluster.is_frozen(node_id):
            raise ActionRefused(f"node {node_id} is not frozen")
        self._events.publish("node thawed", node=node_id)
        self._cluster.thaw_broker(node_id)
        return state.node_row(self._cluster, node_id)

    @contextlib.asynccontextmanager
    async def exclusively(self) -> AsyncIterator[None]:
        """A block in which nothing else is done to any node."""
        async with contextlib.AsyncExitStack() as stack:
            for turn in self._turns.values():
                await stack.enter_async_context(turn)
            yield

    def _turn(self, node_id: int) -> asyncio.Lock:
        self._known(node_id)
        return self._turns[node_id]

    def _known(self, node_id: int) -> None:
        if node_id not in self._turns:
            raise UnknownNode(f"there is no node {node_id}: there are {', '.join(map(str, self._turns))}")

    def _running(self, node_id: int) -> None:
        if node_id not in self._cluster.nodes:
            raise ActionRefused(f"node {node_id} does not run")

    def _session(self, node_id: int) -> MemorySession:
        self._known(node_id)
        self._running(node_id)
        session = session_of(self._cluster, node_id)
        if session is None:
            raise ActionRefused(f"node {node_id} has no session now")
        return session
