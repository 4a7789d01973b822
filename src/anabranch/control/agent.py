"""The control agent of one node: its fault rules, journal and events, for a node that has a process of its own.

Rules about requests, steps and disks act in the node. The agent opens no connections: the front of the cluster, or
another client, sends it requests. It serves a part of the routes of a cluster, see `agent_routes`.

Rules of a front end with the front's lease (`lease`). If the counts of such a rule apply to all nodes, the front
decides on each request (`decisions`), and applies actions that this node cannot apply.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict, TypeVar

from anabranch.broker.coordinators.runtime.failpoints import CRASH_STATUS
from anabranch.control.actions import ActionRefused
from anabranch.control.agent_actions import ProcessActions
from anabranch.control.agent_address import AgentAddress, pid_namespace, register
from anabranch.control.agent_rules import refuse_unsupported
from anabranch.control.decisions import Decisions
from anabranch.control.events import Events
from anabranch.control.lease import LEASE_S, Lease, LeaseRefused
from anabranch.control.node_view import KnownNodes, NodeView
from anabranch.control.telemetry import ClientTelemetry
from anabranch.faults.faults import Faults
from anabranch.faults.rule import about_requests
from anabranch.protocol.host_port import format_host_port

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.node.app import Node
    from anabranch.clients.security import Security
    from anabranch.controller.zk.session import ZkSession
    from anabranch.dashboard.feed import Feed
    from anabranch.faults.active_rule import ActiveRule, RuleRow
    from anabranch.faults.rule import Rule
    from anabranch.journal.journal import Journal

T = TypeVar("T")

log: Final = logging.getLogger(__name__)

SLOW_REQUEST: Final = "slow request"


class AgentRow(TypedDict):
    """The process of an agent, and its clocks."""

    node: Annotated[int, "the node's id"]
    pid: int
    host: Annotated[str, "the name of the machine"]
    at: Annotated[float, "the time of the event loop, as in events, in seconds"]
    now_ms: Annotated[int, "the time of day at the same moment"]
    front: Annotated[str, "the front that holds the lease; empty if none does"]


class LeaseRow(TypedDict):
    """The lease of a front."""

    front: str
    seconds: Annotated[float, "how long the lease lasts unless it is renewed"]
    rules: Annotated[list[str], "the rules of this front that the agent has"]
    newest: Annotated[int, "the number of the newest event"]


class ControlledNode:
    """The object that an agent controls: one node of this process."""

    def __init__(
        self,
        settings: BrokerSettings,
        url: str,
        journal_size: int = 0,
        *,
        frames: bool = False,
        lease_s: float = LEASE_S,
    ) -> None:
        """Create the agent before its node: the node is given `on_step`, `awaits_steps` and `register`.

        `url` is the address of the agent for other machines.
        """
        self.node_id = settings.node_id
        self._address = AgentAddress(self.node_id, url, os.getpid(), socket.gethostname(), pid_namespace())
        self.events = Events()
        self._known = KnownNodes(self.node_id)
        self._crash_at = settings.crash_at
        self._node: Node | None = None
        self._feed: Feed | None = None
        self._lease = Lease(lease_s)
        self._lease_timer: asyncio.TimerHandle | None = None
        self._rules_of_front: set[str] = set()
        self.decisions = Decisions(self._not_decided)
        listeners = tuple(one.name for one in settings.listening)
        self._actions = ProcessActions(self.node_id, self._inter_broker_security, self.events.flush)
        self.faults = Faults(self._known, self._actions, listeners)
        self.faults.on_hit(self.events.on_hit)
        self.journal: Journal | None = None
        self.telemetry: ClientTelemetry | None = None
        if journal_size:
            self.journal = _new_journal(journal_size, self._known, self.events, frames=frames)
            self.faults.on_hit(self.journal.on_hit)

    def on_step(self, step: str) -> None:
        """Handle a completed step of the node's controller or coordinators: `failpoint` of Node."""
        if step == self._crash_at:
            log.error("node %d crashes at failpoint %s", self.node_id, step)
            os._exit(CRASH_STATUS)
        if self.faults:
            self.faults.on_step(self.node_id, step)

    def awaits_steps(self) -> bool:
        """Whether the node may end at a step: `in_turn` of Node."""
        return bool(self._crash_at) or self.faults.has_step_rules(self.node_id)

    async def register(self, session: ZkSession) -> None:
        """Write the agent's address to ZooKeeper: a listener of `Node.on_joined`."""
        await register(session, self._address)

    def watch(self, node: Node) -> None:
        """Control a node that has started."""
        self._node = self._known.node = node
        self.events.watch(node)
        if self.journal is not None:
            self.journal.watch(node)
        self.faults.watch(node)
        self.telemetry = ClientTelemetry(self.cluster, self.events)
        self.telemetry.watch(node)

    async def close(self) -> None:
        """Remove all rules, and wait for their actions."""
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        self.faults.clear()
        if self._feed is not None:
            await self._feed.stop()
        await self._actions.wait_settled()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine."""
        return await work

    @property
    def cluster(self) -> NodeView:
        """The cluster as the node sees it."""
        return NodeView(self.node)

    @property
    def node(self) -> Node:
        """The node."""
        assert self._node is not None, "the agent serves requests once its node has started"
        return self._node

    @property
    def feed(self) -> Feed:
        """The rows that this node knows, for the dashboard of its front; made at the first request."""
        if self._feed is None:
            from anabranch.dashboard.collectors.cluster_rows import ClusterRows
            from anabranch.dashboard.feed import Feed

            def rules() -> Iterator[RuleRow]:
                return (one.row() for one in self.faults)

            self._feed = Feed(
                lambda tell: ClusterRows(self.cluster, tell, rules=rules, has_all=False),
                tell=self._on_collected,
                has_history=False,
            )
        return self._feed

    def _on_collected(self, kind: str, **detail: Any) -> None:
        """Record a slow request; the front sees groups of all nodes, and reports their rebalances itself."""
        if kind == SLOW_REQUEST:
            self.events.publish(kind, **detail)

    def add_rule(self, rule: Rule, front: str = "", *, decided_by_front: bool = False) -> ActiveRule:
        """Add a rule.

        Args:
            rule: The rule.
            front: The front that adds it: the rule ends with the front's lease.
            decided_by_front: The front decides on each request. Steps and writes are always decided here.

        Raises:
            InvalidRule: This node cannot apply the rule.
            ActionRefused: The front does not hold the lease.
        """
        if front:
            with _as_refusal():
                self._lease.check(front, self._now_s())
        elif decided_by_front:
            raise ValueError("decided_by=front needs front, the name of the front")
        refuse_unsupported(rule, self.node_id, has_front=decided_by_front)
        decide = self.decisions.decide if decided_by_front and about_requests(rule) else None
        armed = self.faults.add(rule, decide=decide)
        if front:
            name = armed.rule.name
            self._rules_of_front.add(name)
            armed.on_removal(lambda: self._rules_of_front.discard(name))
        return armed

    def renew_lease(self, front: str) -> LeaseRow:
        """Give the lease to a front, or extend it. Raises ActionRefused if another one holds it."""
        now_s = self._now_s()
        if self._lease.front not in ("", front) and not self._lease.holder(now_s):
            self._end_lease("lease expired")  # before its timer has fired
        with _as_refusal():
            self._lease.renew(front, now_s)
        if self._lease_timer is None:
            self._watch_lease()
        return {
            "front": front,
            "seconds": self._lease.duration_s,
            "rules": sorted(self._rules_of_front),
            "newest": self.events.newest,
        }

    def end_lease(self, front: str) -> None:
        """End the lease of a front, and remove its rules. Raises ActionRefused if it does not hold the lease."""
        self.check_front(front)
        self._end_lease("lease ended")

    def shift_clock(self, offset_ms: int) -> None:
        """Set the node's time of day ahead or behind, until the lease ends."""
        self.node.clock.offset_ms = offset_ms

    def check_front(self, front: str) -> None:
        """Raise ActionRefused unless this front holds the lease."""
        with _as_refusal():
            self._lease.check(front, self._now_s())

    def refuse_others(self, front: str) -> None:
        """Raise ActionRefused if another front than this one holds the lease; an empty name is no front."""
        with _as_refusal():
            self._lease.refuse_others(front, self._now_s())

    def _watch_lease(self) -> None:
        """End an expired lease; otherwise look again when it would expire."""
        self._lease_timer = None
        if self._lease.holder(self._now_s()):
            self._lease_timer = asyncio.get_running_loop().call_at(self._lease.ends_s, self._watch_lease)
        else:
            self._end_lease("lease expired")

    def _end_lease(self, kind: str) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None
        rules = sorted(self._rules_of_front)
        for name in rules:
            self.faults.remove(name)
        self.shift_clock(0)
        self.events.publish(kind, node=self.node_id, front=self._lease.end(), rules=rules)

    def _not_decided(self, rule: str, reason: str) -> None:
        self.events.publish("fault not decided", node=self.node_id, rule=rule, reason=reason)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def row(self) -> AgentRow:
        """The agent as a JSON row."""
        return {
            "node": self.node_id,
            "pid": self._address.pid,
            "host": self._address.host,
            "at": round(self._now_s(), 6),
            "now_ms": self.node.services.clock_ms(),
            "front": self._lease.holder(self._now_s()),
        }

    def _inter_broker_security(self) -> tuple[str, Security | None]:
        settings = self.node.settings
        between = settings.bound(self.node.server.ports).between_brokers
        return format_host_port(between.reachable_host, between.reachable_port(between.port)), settings.security


@contextlib.contextmanager
def _as_refusal() -> Iterator[None]:
    try:
        yield
    except LeaseRefused as error:
        raise ActionRefused(str(error)) from None


def _new_journal(size: int, known: KnownNodes, events: Events, *, frames: bool) -> Journal:
    from anabranch.journal.journal import Journal

    journal = Journal(size, known, frames=frames)
    journal.knows(lambda: events.after(0))
    return journal
