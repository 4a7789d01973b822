"""Actions of rules on brokers: kill, stop, start, freeze, expire, suspend; and leader elections.

An action happens at the moment of the hit, which may be in the middle of a request or between two steps of a
controller: on a `ClockLoop`, a killed or frozen broker executes nothing after that point. Longer actions continue in
the background, and `wait_settled` waits for them. `undo` ends continuous actions (a frozen broker, a suspended
session).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from anabranch.clients.admin import Admin
from anabranch.clock.process import NO_CLOCK, CannotFreeze, outside
from anabranch.controller.zk.memory import Link, MemorySession
from anabranch.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from anabranch.broker.node.app import Node
    from anabranch.clients.security import Security, SecurityArguments
    from anabranch.controller.zk.memory import MemoryZooKeeper

log: Final = logging.getLogger(__name__)


class FaultTarget(Protocol):
    """The interface of a cluster that the actions need."""

    nodes: dict[int, Node]

    @property
    def zookeeper(self) -> MemoryZooKeeper:
        """See Cluster."""

    @property
    def can_freeze(self) -> bool:
        """See Cluster."""

    @property
    def inter_broker_security(self) -> tuple[str, Security | None]:
        """See Cluster."""

    def is_frozen(self, node_id: int) -> bool:
        """See Cluster."""

    def freeze_broker(self, node_id: int) -> None:
        """See Cluster."""

    def thaw_broker(self, node_id: int) -> None:
        """See Cluster."""

    def stop_abruptly(self, node_id: int) -> None:
        """See Cluster."""

    async def start_broker(self, node_id: int) -> None:
        """See Cluster."""

    async def stop_broker(self, node_id: int) -> None:
        """See Cluster."""

    async def crash_broker(self, node_id: int) -> None:
        """See Cluster."""


def session_of(cluster: FaultTarget, node_id: int) -> MemorySession | None:
    """The session of a running broker, if it has not ended."""
    node = cluster.nodes.get(node_id)
    session = None if node is None else node.services.session
    return session if isinstance(session, MemorySession) and cluster.zookeeper.holds(session) else None


class BackgroundActions:
    """Runs elections and postponed work of rules in the background."""

    def __init__(self, inter_broker_security: Callable[[], tuple[str, Security | None]]) -> None:
        """`inter_broker_security` returns bootstrap servers and credentials, for elections."""
        self._inter_broker_security = inter_broker_security
        self._under_way: set[asyncio.Task[None]] = set()

    def elect(self, how: str, partitions: Collection[TopicPartition]) -> None:
        """Request a leader election for these partitions, as an administrator does."""
        self._begin(self._elect(how, list(partitions)), f"elect {how}")

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run postponed work in the background."""
        self._begin(work(), "deferred actions")

    async def wait_settled(self) -> None:
        """Wait for all actions in the background."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name, context=outside())
        self._under_way.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s: %s", task.get_name(), error)

    async def _elect(self, how: str, partitions: list[TopicPartition]) -> None:
        servers, security = self._inter_broker_security()
        secured: SecurityArguments = {} if security is None else {"security": security}
        async with Admin(servers, **secured) as admin:
            for one, error in (await admin.elect_leaders(partitions, unclean=how == "unclean")).items():
                if error is not None:
                    log.warning("cannot elect %s for %s: %s", how, one, error)


class FaultActions(BackgroundActions):
    """Applies the actions of rules to the brokers of one cluster."""

    def __init__(self, cluster: FaultTarget) -> None:
        super().__init__(lambda: cluster.inter_broker_security)
        self._cluster = cluster
        self._starting: set[int] = set()

    def check_can_freeze(self) -> None:
        """Raise CannotFreeze if brokers cannot be frozen, with the reason."""
        if not self._cluster.can_freeze:
            raise CannotFreeze(NO_CLOCK)

    def apply(self, what: str, node_id: int) -> None:
        """Apply an action to a broker; no effect if the broker is in that state already."""
        if what == "kill":
            self._cluster.stop_abruptly(node_id)
        if what in ("kill", "stop", "start"):
            self._begin(self._turn(what, node_id), f"{what} broker {node_id}")
        else:
            outside().run(self._at_once, what, node_id)

    def undo(self, what: str, node_id: int) -> None:
        """Undo a continuous action, if it has not ended."""
        cluster = self._cluster
        if what == "freeze" and cluster.is_frozen(node_id):
            cluster.thaw_broker(node_id)
        elif what == "suspend" and node_id in cluster.nodes:
            session = cluster.nodes[node_id].services.session
            if isinstance(session, MemorySession) and session.link is Link.SUSPENDED:
                session.reconnect()

    async def _turn(self, what: str, node_id: int) -> None:
        cluster = self._cluster
        if what == "start":
            if node_id not in cluster.nodes and node_id not in self._starting:
                self._starting.add(node_id)
                try:
                    await cluster.start_broker(node_id)
                finally:
                    self._starting.discard(node_id)
        elif node_id in cluster.nodes:  # a rule may hit twice before the first start has run
            await (cluster.crash_broker(node_id) if what == "kill" else cluster.stop_broker(node_id))

    def _at_once(self, what: str, node_id: int) -> None:
        cluster, session = self._cluster, session_of(self._cluster, node_id)
        if what == "freeze" and node_id in cluster.nodes:
            cluster.freeze_broker(node_id)
        elif what == "expire" and session is not None:
            cluster.zookeeper.expire(session)
        elif what == "suspend" and session is not None and session.link is Link.CONNECTED:
            session.lose_connection()
