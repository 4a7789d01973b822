"""The fault rules of a cluster of processes: sent to the nodes that they affect, counted over all of them.

A rule for a node that is down waits for it. A node that returns gets its rules before its return is reported, and loses
those that were removed meanwhile. See `SpreadRule` for who decides which requests are hit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.front.agent_client import ASK_S, AgentUnreachable
from anabranch.control.front.process_actions import NO_LINKS
from anabranch.control.front.rule_actions import SUSPEND, NodeActions, RuleActions
from anabranch.control.front.spread_rule import OWN_ACTIONS, SpreadRule, refuse_unsupported
from anabranch.control.route import WaitTimedOut
from anabranch.faults.faults import REMOVED_KEPT, Faults
from anabranch.faults.rule import FREEZE
from anabranch.faults.rule_json import InvalidRule, to_json
from anabranch.faults.trigger import Trigger

if TYPE_CHECKING:
    from anabranch.control.front.agent_client import AgentClient
    from anabranch.faults.active_rule import RuleRow
    from anabranch.faults.rule import Rule

log: Final = logging.getLogger(__name__)

FAULTS: Final = "/v1/faults"
POLL_S: Final = 0.05
"""The pause between two looks at the counts of nodes, which report only a rule's first hits as events."""


STOPS_ITSELF_S: Final = 0.5
"""How long a node may take to accept a decision after which it stops itself, perhaps before its response."""


class Linked(Protocol):
    """The interface of a link to a node."""

    @property
    def node_id(self) -> int:
        """The node's id."""

    @property
    def client(self) -> AgentClient:
        """The node's agent."""

    @property
    def reachable(self) -> bool:
        """Whether the agent can answer now."""


class FrontRules:
    """The rules of one cluster.

    Args:
        links: Node id -> its link.
        actions: The actions on nodes.
        query: The parameters with which the front adds a rule, for rules that it decides and for others.
    """

    def __init__(
        self,
        links: Mapping[int, Linked],
        actions: NodeActions,
        query: Callable[[bool], Mapping[str, str]] = lambda decided: {},
    ) -> None:
        self._links = links
        self._query = query
        self.actions = RuleActions(actions)
        self._known = Faults(sorted(links), self.actions, refuse=self._refuse)
        self._rules: dict[str, SpreadRule] = {}
        self._removed: deque[RuleRow] = deque(maxlen=REMOVED_KEPT)
        self._turn = asyncio.Lock()
        self._hit = asyncio.Event()

    def _refuse(self, rule: Rule) -> None:
        """Raise InvalidRule if a rule is not possible here."""
        refuse_unsupported(rule)
        if rule.node == SUSPEND and not self.actions.can_suspend:
            raise InvalidRule(NO_LINKS)

    async def add(self, rule: Rule) -> RuleRow:
        """Add a rule, and respond when every node that is up has it. Raises InvalidRule.

        If that fails, or is cancelled, no node keeps the rule.
        """
        async with self._turn:
            armed = self._known.add(rule)
            armed.activate()
            one = self._rules[armed.rule.name] = SpreadRule(armed, sorted(self._links), self._now_s())
            try:
                await self._each(one.nodes, lambda link: self._offer(one, link))
            except BaseException as error:
                await self._withdraw(one)
                del self._rules[armed.rule.name]
                self._known.remove(armed.rule.name)
                if isinstance(error, ValueError):
                    raise InvalidRule(str(error)) from None
                raise
            return one.row()

    async def rows(self, *, removed: bool = False) -> list[RuleRow]:
        """Every rule, in order; on request, first the rules removed last."""
        await self._look()
        return [*(self._removed if removed else ()), *(one.row() for one in self._rules.values())]

    def known_rows(self) -> list[RuleRow]:
        """Every rule, in order, with the counts that are known now."""
        return [one.row() for one in self._rules.values()]

    async def row(self, name: str) -> RuleRow:
        """One rule. Raises UnknownNode."""
        one = self._get(name)
        await self._look()
        return one.row()

    async def remove(self, name: str) -> RuleRow:
        """Remove a rule everywhere, and release what it holds. Raises UnknownNode."""
        async with self._turn:
            one = self._get(name)
            await self._thaw(one)
            await self._withdraw(one)
            del self._rules[name]
            self._known.remove(name)
            row = one.row()
            self._removed.append(row)
            return row

    async def clear(self) -> None:
        """Remove all rules."""
        for name in list(self._rules):
            await self.remove(name)

    async def release(self, name: str) -> RuleRow:
        """Release what a rule holds on all nodes. Raises UnknownNode."""
        async with self._turn:
            one = self._get(name)
            one.released = True
            one.armed.release()
            await self._thaw(one)
            await self._each(one.applied, lambda link: self._ask(one, link, "POST", "/release"))
            return one.row()

    async def wait_hits(self, name: str, hits: int, timeout_s: float) -> RuleRow:
        """Wait until a rule has reached a number of hits. Raises UnknownNode or WaitTimedOut."""
        one = self._get(name)
        deadline_s = self._now_s() + timeout_s
        while True:
            self._hit.clear()
            if not one.decided:
                await self._look()
            if (one.delivered if one.decided else one.hits) >= hits:
                await self._look()
                return one.row()
            if self._rules.get(name) is not one or 0 < one.armed.rule.times < hits:
                raise WaitTimedOut(f"{_account(one)}, and can hit no more")
            if self._now_s() >= deadline_s:
                raise WaitTimedOut(f"after {timeout_s:g} s {_account(one)}")
            await _wait_for(self._hit, min(deadline_s, self._now_s() + POLL_S))

    # --- called for links

    async def reconcile(self, link: Linked, there: Collection[str]) -> None:
        """Give a node the rules that it lacks, and remove those that it should not have; `there`: those that it had."""
        async with self._turn:
            expected = {name: one for name, one in self._rules.items() if link.node_id in one.nodes and not one.spent}
            if any(name not in there and link.node_id in one.applied for name, one in expected.items()):
                there = [row["name"] for row in await link.client.ask("GET", FAULTS)]  # it was given a rule meanwhile
            for name in set(there) - expected.keys():
                path = f"{FAULTS}/{quote(name, safe='')}"
                await _gone(link.client.ask("DELETE", path, query=self._query(False)))
            for name, one in expected.items():
                if name in there:
                    one.applied.add(link.node_id)
                    continue
                try:
                    await self._give(one, link)
                except ValueError as error:
                    log.warning("node %d refuses rule %s: %s", link.node_id, name, error)

    def on_down(self, link: Linked) -> None:
        """A node does not answer any more."""
        for one in self._rules.values():
            one.on_unlinked(link.node_id)
        self._hit.set()

    def on_new_process(self, link: Linked) -> None:
        """A node has started again."""
        for one in self._rules.values():
            one.on_replaced(link.node_id)

    def on_row(self, node_id: int, row: RuleRow) -> None:
        """A node reports the counts of a rule."""
        one = self._rules.get(row["name"])
        if one is not None and node_id in one.applied:
            one.on_report(node_id, row)

    def on_hit(self, name: str, node_id: int, at_s: float) -> int | None:
        """A node reports a hit; returns the hits on all nodes, as far as they are known; None for an earlier rule."""
        self._hit.set()
        one = self._rules.get(name)
        if one is None or at_s < one.since_s:
            return None
        one.hit(node_id)
        return one.hits

    @property
    def has_used_up(self) -> bool:
        """Whether nodes have a rule that they decide alone, and whose hits are used up on all nodes together."""
        return any(not one.decided and one.applied and one.spent for one in self._rules.values())

    async def retire_spent(self) -> None:
        """Remove rules from nodes that decide alone, once the hits of all nodes together are used up."""
        if not self.has_used_up:
            return
        async with self._turn:
            await self._look()
            for one in self._rules.values():
                if not one.decided and one.spent:
                    await self._withdraw(one)

    async def decide(self, link: Linked, question: Mapping[str, Any]) -> None:
        """Decide whether a request is hit, and tell its node."""
        one = self._rules.get(question["rule"])
        hit = one is not None and one.armed.hit(Trigger(link.node_id, "request", question["api"]))
        if one is not None and hit:
            self.actions.hit_at = link.node_id
            one.armed.apply_action(link.node_id)
            self.actions.hit_at = -1
        body = {"hit": hit, "spent": one is None or one.armed.spent}
        stops_itself = one is not None and hit and one.armed.rule.node in OWN_ACTIONS
        try:
            path, timeout_s = f"/v1/agent/decisions/{question['id']}", STOPS_ITSELF_S if stops_itself else ASK_S
            await link.client.ask("POST", path, body, self._query(False), timeout_s=timeout_s)
        except AgentUnreachable as error:  # a node that stops itself may not answer
            log.debug("%s", error)
        except ActionRefused as error:
            log.warning("node %d did not take a decision about rule %s: %s", link.node_id, question["rule"], error)
        if one is not None and hit:
            one.delivered += 1
            self._hit.set()

    # --- one rule, one node

    async def _give(self, one: SpreadRule, link: Linked) -> None:
        """Give a rule to a node. It counts as applied, to be withdrawn, unless the node refuses it."""
        had_it = link.node_id in one.applied
        one.applied.add(link.node_id)  # also if the response is late or lost
        try:
            row = await link.client.ask("POST", FAULTS, to_json(one.armed.rule), self._query(one.decided))
        except (ValueError, ActionRefused):
            if not had_it:
                one.applied.discard(link.node_id)
            raise
        one.on_report(link.node_id, row)
        if one.released:
            await self._ask(one, link, "POST", "/release")

    async def _offer(self, one: SpreadRule, link: Linked) -> None:
        """Give a rule to a node. One that has just started refuses it, and gets it with the lease (`reconcile`)."""
        try:
            await self._give(one, link)
        except ActionRefused as error:
            log.info("rule %s waits for node %d: %s", one.armed.rule.name, link.node_id, error)

    async def _withdraw(self, one: SpreadRule) -> None:
        """Remove a rule from all nodes that have it."""
        await self._each(one.applied, lambda link: self._ask(one, link, "DELETE", ""))
        one.applied.clear()

    async def _thaw(self, one: SpreadRule) -> None:
        """Resume the nodes that a rule froze, so that they can answer."""
        if one.armed.rule.node == FREEZE:
            one.armed.release()
            await self.actions.wait_settled()
            if one.armed.rule.step:
                for node_id in one.nodes:
                    await self.actions.thaw(node_id)

    async def _ask(self, one: SpreadRule, link: Linked, method: str, path: str) -> None:
        name = quote(one.armed.rule.name, safe="")
        row = await _gone(link.client.ask(method, f"{FAULTS}/{name}{path}", query=self._query(False)))
        if row is not None:
            one.on_report(link.node_id, row)

    async def _look(self) -> None:
        """Read the counts of all nodes."""

        async def look(link: Linked) -> None:
            for row in await link.client.ask("GET", FAULTS):
                self.on_row(link.node_id, row)

        if self._rules:
            await self._each(self._links, look)

    async def _each(self, node_ids: Collection[int], work: Callable[[Linked], Awaitable[None]]) -> None:
        """Do something for all of these nodes that can answer. Raises the first error but AgentUnreachable."""
        links = [self._links[one] for one in node_ids if self._links[one].reachable]
        for result in await asyncio.gather(*map(work, links), return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, AgentUnreachable):
                raise result

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _get(self, name: str) -> SpreadRule:
        if name not in self._rules:
            raise UnknownNode(f"there is no rule {name}; there are {', '.join(self._rules) or 'none'}")
        return self._rules[name]


def _account(one: SpreadRule) -> str:
    if not one.met:
        return f"rule {one.armed.rule.name} matched no request"
    return f"rule {one.armed.rule.name} has hit {one.hits} of {one.met} matching requests"


async def _gone(request: Awaitable[Any]) -> Any:
    """The response; None if what the request names is not there, or is in that state already."""
    try:
        return await request
    except ActionRefused:
        return None


async def _wait_for(event: asyncio.Event, deadline_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(deadline_s):
            await event.wait()
