"""Actions on node processes: SIGKILL, SIGTERM, SIGSTOP, SIGCONT, start again, and their ZooKeeper sessions.

Names, events and refusals are those of `control.actions`. The differences come from real processes: a killed or frozen
node keeps its ZooKeeper session until the session's timeout, so the controller elects new leaders that much later.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from anabranch.cluster.control_socket import OrderRefused
from anabranch.cluster.zookeeper_sessions import NoSession, expire, session_of
from anabranch.control.actions import ActionRefused, UnknownNode, all_locked

NOTICE_S: Final = 10.0
"""How long the kernel may take to show that a process is stopped or goes on."""
POLL_S: Final = 0.005

NO_LINKS: Final = (
    "this front has not started the nodes, so their connections to ZooKeeper do not pass it; freeze the node, "
    "or expire its session"
)
"""Why a front without links to ZooKeeper cannot suspend or delay sessions."""

Publish = Callable[..., None]
"""Records an event: `publish(kind, **detail)`."""


class NodeLinks(Protocol):
    """The interface of the nodes' links to ZooKeeper."""

    def is_cut(self, node_id: int) -> bool:
        """Whether a node is cut off from ZooKeeper."""

    def cut(self, node_id: int) -> None:
        """Cut a node off, until `heal`."""

    def delay_s(self, node_id: int) -> float:
        """By how much a node's traffic is late, in each direction."""

    def delay(self, node_id: int, delay_s: float) -> None:
        """Delay the traffic of a node in both directions, until `heal`."""

    def heal(self, node_id: int) -> None:
        """Let a node connect again, and without delay."""


class ProcessHandle(Protocol):
    """The interface of a node's process."""

    @property
    def running(self) -> bool:
        """Whether the process runs, or is stopped by SIGSTOP."""

    @property
    def frozen(self) -> bool:
        """Whether the process is stopped by SIGSTOP."""

    @property
    def refusal(self) -> str:
        """Why this front cannot signal the process; empty if it can."""

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""

    async def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""

    async def stop(self) -> None:
        """Send SIGTERM, and wait for the end."""


class ProcessActions:
    """Executes actions on the processes of one cluster, one at a time for each node.

    Args:
        processes: Node id -> its process.
        start: Starts an ended node, and returns when it is ready. Raises OrderRefused.
        zookeeper: The connect string of the ensemble.
        publish: Records an event.
        links: The nodes' links to ZooKeeper; None if they do not pass this process.
    """

    def __init__(
        self,
        processes: Mapping[int, ProcessHandle],
        start: Callable[[int], Awaitable[Any]],
        zookeeper: str,
        publish: Publish,
        links: NodeLinks | None = None,
    ) -> None:
        self._processes = processes
        self._start = start
        self._zookeeper = zookeeper
        self._publish = publish
        self._links = links
        self._turns = {node_id: asyncio.Lock() for node_id in processes}
        self.frozen_on_request: set[int] = set()
        """The nodes that are frozen by an action, and not by a rule."""
        self.suspended_on_request: set[int] = set()
        """The nodes whose sessions are suspended by an action, and not by a rule."""

    @property
    def can_suspend(self) -> bool:
        """Whether sessions can be suspended and delayed here."""
        return self._links is not None

    async def kill(self, node_id: int) -> None:
        """Kill a node with SIGKILL. Raises UnknownNode, or ActionRefused if it is not running."""
        async with self._turn(node_id):
            process = self._running(node_id, to_signal=True)
            self.frozen_on_request.discard(node_id)
            self._publish("node killed", node=node_id)
            await process.kill()
            self._reconnect(node_id)

    async def stop(self, node_id: int) -> None:
        """Stop a node with SIGTERM. Raises UnknownNode, or ActionRefused if it is stopped, frozen or cut off."""
        async with self._turn(node_id):
            process = self._running(node_id, to_signal=True)
            if process.frozen:
                raise ActionRefused(f"node {node_id} is frozen and cannot stop in order; thaw it first, or kill it")
            if self._is_cut(node_id):
                raise ActionRefused(
                    f"node {node_id} is cut off from ZooKeeper and cannot stop in order; resume its session first, "
                    "or kill it"
                )
            self._publish("node stopping", node=node_id)
            await process.stop()
            self._publish("node stopped", node=node_id)

    async def start(self, node_id: int) -> None:
        """Start a stopped node. Raises UnknownNode, or ActionRefused if it is running."""
        async with self._turn(node_id):
            if self._processes[node_id].running:
                raise ActionRefused(f"node {node_id} is already running")
            self._refuse_foreign(node_id)
            if frozen := [str(one) for one, process in self._processes.items() if process.frozen and one != node_id]:
                raise ActionRefused(
                    f"node {node_id} cannot become ready while node {', '.join(frozen)} is frozen; thaw it first"
                )
            self._reconnect(node_id)
            self._publish("node starting", node=node_id)
            try:
                await self._start(node_id)
            except OrderRefused as error:
                raise ActionRefused(str(error)) from None
            self._publish("node started", node=node_id)

    async def freeze(self, node_id: int, *, by_rule: bool = False) -> None:
        """Stop a node's process with SIGSTOP. Raises UnknownNode, or ActionRefused if it is stopped or frozen."""
        async with self._turn(node_id):
            process = self._running(node_id, to_signal=True)
            if process.frozen:
                raise ActionRefused(f"node {node_id} is already frozen")
            if not by_rule:
                self.frozen_on_request.add(node_id)
            self._publish("node frozen", node=node_id)
            process.signal(signal.SIGSTOP)
            await _until(lambda: process.frozen or not process.running)

    async def thaw(self, node_id: int) -> None:
        """Resume a frozen node with SIGCONT. Raises UnknownNode, or ActionRefused if it is not frozen."""
        async with self._turn(node_id):
            process = self._processes[node_id]
            self._refuse_foreign(node_id)
            if not process.frozen:
                raise ActionRefused(f"node {node_id} is not frozen")
            self.frozen_on_request.discard(node_id)
            self._publish("node thawed", node=node_id)
            process.signal(signal.SIGCONT)
            await _until(lambda: not process.frozen)

    async def expire_session(self, node_id: int) -> None:
        """Expire a node's ZooKeeper session; the node runs on. Raises UnknownNode, or ActionRefused if it has none."""
        async with self._turn(node_id):
            self._running(node_id)
            try:
                session = await session_of(self._zookeeper, node_id)
                self._publish("session expired", node=node_id)
                await expire(self._zookeeper, session)
            except NoSession as error:
                raise ActionRefused(str(error)) from None

    @contextlib.asynccontextmanager
    async def exclusively(self) -> AsyncIterator[None]:
        """A block during which no other action runs on any node."""
        async with all_locked(self._turns.values()):
            yield

    async def suspend_session(self, node_id: int, *, by_rule: bool = False) -> None:
        """Cut a node off from ZooKeeper until `resume_session`. Raises UnknownNode or ActionRefused."""
        async with self._turn(node_id):
            links = self._needs_links()
            self._running(node_id)
            if links.is_cut(node_id):
                raise ActionRefused(f"node {node_id} is already cut off from ZooKeeper")
            if not by_rule:
                self.suspended_on_request.add(node_id)
            self._publish("session suspended", node=node_id)
            links.cut(node_id)

    async def delay_session(self, node_id: int, delay_ms: int) -> None:
        """Delay what a node sends to ZooKeeper and gets from it, until `resume_session`.

        Raises UnknownNode or ActionRefused.
        """
        async with self._turn(node_id):
            links = self._needs_links()
            self._running(node_id)
            self._publish("session delayed", node=node_id, delay_ms=delay_ms)
            links.delay(node_id, delay_ms / 1000)

    def delay_ms(self, node_id: int) -> int:
        """By how much what a node sends to ZooKeeper and gets from it is late."""
        return 0 if self._links is None else round(1000 * self._links.delay_s(node_id))

    async def resume_session(self, node_id: int) -> None:
        """Let a node reach ZooKeeper again, and at once; its session may have expired.

        Raises UnknownNode or ActionRefused.
        """
        async with self._turn(node_id):
            links = self._needs_links()
            if not links.is_cut(node_id) and not links.delay_s(node_id):
                raise ActionRefused(f"node {node_id} is not cut off from ZooKeeper, and nothing delays it")
            self._publish("session resumed", node=node_id)
            self._reconnect(node_id)

    def _needs_links(self) -> NodeLinks:
        if self._links is None:
            raise ActionRefused(NO_LINKS)
        return self._links

    def _is_cut(self, node_id: int) -> bool:
        return self._links is not None and self._links.is_cut(node_id)

    def _reconnect(self, node_id: int) -> None:
        """End a cut or delay: a process that has ended, or starts, has no session that is suspended."""
        self.suspended_on_request.discard(node_id)
        if self._links is not None:
            self._links.heal(node_id)

    def require_node(self, node_id: int) -> None:
        """Raise UnknownNode if there is no such node."""
        if node_id not in self._turns:
            raise UnknownNode(f"there is no node {node_id}: there are {', '.join(map(str, self._turns))}")

    def _turn(self, node_id: int) -> asyncio.Lock:
        self.require_node(node_id)
        return self._turns[node_id]

    def _running(self, node_id: int, *, to_signal: bool = False) -> ProcessHandle:
        process = self._processes[node_id]
        if not process.running:
            raise ActionRefused(f"node {node_id} is not running")
        if to_signal:
            self._refuse_foreign(node_id)
        return process

    def _refuse_foreign(self, node_id: int) -> None:
        """Raise ActionRefused for a process of another machine or user, before anything is reported as done."""
        if reason := self._processes[node_id].refusal:
            raise ActionRefused(reason)


async def _until(reached: Callable[[], bool]) -> None:
    """Wait until a signal has had its effect, which the kernel does not report."""
    async with asyncio.timeout(NOTICE_S):
        while not reached():  # noqa: ASYNC110  # the kernel sets no event here
            await asyncio.sleep(POLL_S)
