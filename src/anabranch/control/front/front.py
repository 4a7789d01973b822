"""The front: the object that the control plane of a cluster of processes controls.

It links to the agent of every node, renews its lease on each, merges their events, and gives them the rules. A front
that ends removes its rules; if it cannot, the agents do so when its lease ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anabranch.clients.admin import Admin
from anabranch.clients.producer.producer import Producer
from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.events import Events
from anabranch.control.front.agent_client import ASK_S, AgentUnreachable
from anabranch.control.front.event_order import EventOrder, NodeEvent
from anabranch.control.front.front_rules import FrontRules
from anabranch.control.front.journal_merge import NODES_MAX
from anabranch.control.front.node_link import NodeLink
from anabranch.control.front.state_merge import MergedState, merge_nodes, merge_states

if TYPE_CHECKING:
    from anabranch.clients.security import Security, SecurityArguments
    from anabranch.cluster.process_snapshots import ProcessSnapshots
    from anabranch.control.controlled_cluster import TourGuide
    from anabranch.control.front.agent_client import AgentClient
    from anabranch.control.front.node_link import LinkedNode
    from anabranch.control.front.process_actions import ProcessActions
    from anabranch.control.state import ClusterStateRow, NodeRow
    from anabranch.control.wait_conditions import Condition
    from anabranch.dashboard.feed import Feed

T = TypeVar("T")

log: Final = logging.getLogger(__name__)

FRONT: Final = -1
"""The source of the front's own events."""
WINDOW_S: Final = 0.1
"""How long an event waits for older ones of other nodes."""
BURST_S: Final = 0.02
"""The pause in which further events are awaited: they come in bursts."""
UP_S: Final = 60.0
"""How long a node's agent may take to accept the front, once the node is ready."""
LOOK_S: Final = 0.1
"""The pause between two looks at the state, for a wait."""
RENEW_S: Final = 3.0
LEASE: Final = "/v1/agent/lease"
CLOCK: Final = "/v1/agent/clock"
DECISIONS: Final = "/v1/agent/decisions"
QUESTION: Final = "decision"
"""The kind of message with which an agent asks for a decision."""


class Front:
    """The front of one cluster; an async context manager.

    Args:
        nodes: Node id -> the node.
        client_of: Makes the client of a node's agent.
        actions: Makes the actions on nodes, given a function that records events.
        servers: The inter-broker addresses of all brokers.
        security: The credentials there.
        snapshots: The snapshots of a cluster whose launcher is this process.
    """

    def __init__(
        self,
        nodes: Mapping[int, LinkedNode],
        client_of: Callable[[int], AgentClient],
        actions: Callable[[Callable[..., None]], ProcessActions],
        servers: Callable[[], str],
        security: Security | None = None,
        snapshots: ProcessSnapshots | None = None,
    ) -> None:
        if len(nodes) > NODES_MAX:
            raise ValueError(f"a front controls at most {NODES_MAX} nodes, not {len(nodes)}")
        self.name = secrets.token_hex(8)
        """The name by which agents know this front."""
        self.events = Events()
        self.actions = actions(self.publish)
        self.links = {
            node_id: NodeLink(node, client_of(node_id), self._on_up, self._on_down, self._on_event)
            for node_id, node in nodes.items()
        }
        self.rules = FrontRules(self.links, self.actions, self._query)
        self.snapshots = snapshots
        self._servers = servers
        self.security = security
        """The credentials at the inter-broker addresses."""
        self._security: SecurityArguments = {} if security is None else {"security": security}
        self.feed: Feed | None = None
        """The dashboard's feed; created at the first request."""
        self.guide: TourGuide | None = None
        """The tour's guide; created at the first request."""
        self.clock_offsets_ms: dict[int, int] = {}
        """How far the nodes' time of day is ahead, where it is; a node gets it again when it restarts."""
        self._turn = asyncio.Lock()
        self._order = EventOrder()
        self._arrived = asyncio.Event()
        self._changed = asyncio.Event()
        self._used_up = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._answering: dict[int, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Front:
        """Link to all nodes that run."""
        work = [self._publish_in_order(), self._retire_used_up()]
        for link in self.links.values():
            work += [link.run(), self._renew_lease_on(link)]
        self._tasks = [asyncio.create_task(one) for one in work]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Remove all rules, and give the leases back."""
        await self.rules.actions.wait_settled()
        with contextlib.suppress(ActionRefused):
            await self.ask_each(lambda client: client.ask("DELETE", LEASE, query={"front": self.name}))
        tasks = [*self._tasks, *self._answering.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def open_dashboard(self, guide: TourGuide) -> tuple[Front, Feed]:
        """See HasDashboard; the modules are loaded by the first request."""
        from anabranch.control.front.node_rows import NodeRows
        from anabranch.dashboard.feed import Feed

        feed = self.feed = Feed(lambda tell: NodeRows(self.links, self.rules, tell), tell=self.publish)
        self.events.on_event(feed.on_event)
        self.guide = guide
        return self, feed

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine."""
        return await work

    @property
    def servers(self) -> str:
        """The inter-broker addresses of all brokers."""
        return self._servers()

    def admin(self) -> Admin:
        """An admin client with the credentials of a broker."""
        return Admin(self._servers(), **self._security)

    def producer(self) -> Producer:
        """A producer that keeps keys in order, with the credentials of a broker."""
        return Producer(self._servers(), linger_ms=0, **self._security)

    def publish(self, kind: str, **detail: Any) -> None:
        """Record an event of the front."""
        self._on_event(NodeEvent(FRONT, asyncio.get_running_loop().time(), kind, detail))

    async def settle(self) -> None:
        """Wait until the events that have happened so far have their numbers."""
        await asyncio.sleep(WINDOW_S)
        self._number_events()

    def forget_epochs(self) -> None:
        """Number all events so far; epochs may repeat from now on, as after a restore."""
        for one in self._order.take(asyncio.get_running_loop().time()):
            self.events.publish_at(one.at_s, one.kind, one.detail)
        self._order = EventOrder()

    async def wait_up(self, node_id: int) -> None:
        """Wait until a node that has started has its rules. Raises ActionRefused if its agent does not answer."""
        link = self.links[node_id]
        try:
            async with asyncio.timeout(UP_S):
                await link.wait_up()
        except TimeoutError:
            reason = link.refusal or "its control agent does not answer"
            raise ActionRefused(f"node {node_id} has no rules yet: {reason}") from None

    async def catch_up(self, node_id: int) -> None:
        """Give a node that was frozen the rules of the meantime."""
        link = self.links[node_id]
        with contextlib.suppress(AgentUnreachable):
            await self._renew(link)

    async def shift_clock(self, node_id: int, offset_ms: int) -> None:
        """Set a node's time of day ahead or behind. Raises UnknownNode."""
        if node_id not in self.links:
            raise UnknownNode(f"there is no node {node_id}: there are {', '.join(map(str, self.links))}")
        self.clock_offsets_ms[node_id] = offset_ms
        self.publish("clock shifted", node=node_id, offset_ms=offset_ms)
        link = self.links[node_id]
        if link.reachable:
            with contextlib.suppress(AgentUnreachable):
                await self._tell_clock(link)

    async def _tell_clock(self, link: NodeLink) -> None:
        body = {"offset": self.clock_offsets_ms.get(link.node_id, 0) / 1000}
        await link.client.ask("POST", CLOCK, body, query={"front": self.name})

    @contextlib.asynccontextmanager
    async def exclusively(self) -> AsyncIterator[None]:
        """A block during which no other one changes the state of the whole cluster."""
        async with self._turn:
            yield

    # --- the state

    async def ask_each(
        self, ask: Callable[[AgentClient], Coroutine[Any, Any, T]], node_ids: Collection[int] | None = None
    ) -> dict[int, T]:
        """Ask all nodes that can answer at the same time; those that do not answer are left out."""
        links = [one for one in self.links.values() if one.reachable and (node_ids is None or one.node_id in node_ids)]
        found = await asyncio.gather(*(ask(one.client) for one in links), return_exceptions=True)
        answers: dict[int, T] = {}
        for link, answer in zip(links, found, strict=True):
            if isinstance(answer, BaseException):
                if not isinstance(answer, AgentUnreachable):
                    raise answer
            else:
                answers[link.node_id] = answer
        return answers

    async def state(self) -> ClusterStateRow:
        """The whole state."""
        return merge_states(await self.ask_each(lambda client: client.ask("GET", "/v1/state")), self.node_rows())

    async def nodes(self) -> list[NodeRow]:
        """Every node, with what each running node says of itself."""
        reported = await self.ask_each(lambda client: client.ask("GET", "/v1/nodes"))
        return merge_nodes(self.node_rows(), reported)

    async def node(self, node_id: int) -> NodeRow:
        """One node."""
        return next(row for row in await self.nodes() if row["node"] == node_id)

    def node_rows(self) -> list[NodeRow]:
        """Every node, as far as the front itself knows it."""
        return [_node_row(link.node, self.actions.delay_ms(node_id)) for node_id, link in self.links.items()]

    async def wait(self, awaited: Condition, timeout_s: float) -> str:
        """Wait until a condition holds. Returns an empty string, or at the timeout the unmet part."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            self._changed.clear()
            left = awaited.missing(MergedState(await self.state()))
            if not left or loop.time() >= deadline_s:
                return left
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline_s):
                    await asyncio.sleep(BURST_S)
                    async with asyncio.timeout(LOOK_S):
                        await self._changed.wait()

    # --- links

    def _query(self, decided: bool) -> Mapping[str, str]:
        """The parameters of a rule that the front adds."""
        return {"front": self.name, **({"decided_by": "front"} if decided else {})}

    async def _on_up(self, link: NodeLink) -> None:
        """Take the lease, and answer the node's questions before it gets rules."""
        if link.is_new:
            self.rules.on_new_process(link)
        await link.client.ask("POST", LEASE, {"front": self.name})
        listening = asyncio.Event()
        self._answering[link.node_id] = asyncio.create_task(self._answer_questions(link, listening))
        async with asyncio.timeout(ASK_S):
            await listening.wait()
        await self._renew(link)

    async def _on_down(self, link: NodeLink) -> None:
        if (answering := self._answering.pop(link.node_id, None)) is not None:
            answering.cancel()
        self.rules.on_down(link)
        self._used_up.set()

    def _on_event(self, event: NodeEvent) -> None:
        if event.kind == "fault" and event.source != FRONT:
            hits = self.rules.on_hit(event.detail["rule"], event.source, event.at_s)
            if hits is not None:
                event = NodeEvent(event.source, event.at_s, event.kind, {**event.detail, "hits": hits})
                if self.rules.has_used_up:
                    self._used_up.set()
        self._order.add(event)
        self._arrived.set()
        self._changed.set()

    async def _publish_in_order(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while (oldest_s := self._order.oldest_s) is not None:
                await asyncio.sleep(max(oldest_s + WINDOW_S - loop.time(), BURST_S))
                self._number_events()

    def _number_events(self) -> None:
        for one in self._order.take(asyncio.get_running_loop().time() - WINDOW_S):
            self.events.publish_at(one.at_s, one.kind, one.detail)

    async def _renew(self, link: NodeLink) -> None:
        """Renew the lease on a node, and give the node the rules that it lacks."""
        lease = await link.client.ask("POST", LEASE, {"front": self.name})
        if link.node_id in self.clock_offsets_ms:
            await self._tell_clock(link)
        await self.rules.reconcile(link, lease["rules"])

    async def _renew_lease_on(self, link: NodeLink) -> None:
        """Renew the lease on a node before it ends, however long others take to answer."""
        while True:
            await asyncio.sleep(RENEW_S)
            if link.reachable:
                await self._try_renew(link)
                self._used_up.set()

    async def _retire_used_up(self) -> None:
        """Remove rules from nodes that decide alone, as soon as their hits are used up."""
        while True:
            await self._used_up.wait()
            self._used_up.clear()
            await self.rules.retire_spent()

    async def _try_renew(self, link: NodeLink) -> None:
        try:
            await self._renew(link)
        except (AgentUnreachable, ActionRefused, ValueError) as error:
            log.warning("node %d: %s", link.node_id, error)

    async def _answer_questions(self, link: NodeLink, listening: asyncio.Event) -> None:
        """Decide which requests of a node are hit by rules that count over all nodes."""
        while True:
            with contextlib.suppress(AgentUnreachable, ActionRefused):
                async for kind, question in link.client.follow(DECISIONS, {"front": self.name}):
                    listening.set()
                    if kind == QUESTION:
                        await self.rules.decide(link, question)
            await asyncio.sleep(LOOK_S)


def _node_row(node: LinkedNode, delay_ms: int) -> NodeRow:
    row: NodeRow = {"node": node.node_id, "host": node.host, "port": node.port, "running": node.running}
    if node.running:
        row["frozen"] = node.frozen
    if reason := node.refusal:
        row["refused"] = reason
    if delay_ms:
        row["zookeeper_delay_ms"] = delay_ms
    return row
