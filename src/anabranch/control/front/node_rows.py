"""The dashboard's rows of a cluster of processes, from the control agents of its nodes.

While a page is open, the front follows the rows of every agent, which sends a change at most five times a second.
Without a page, each collection asks the agents once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from anabranch.control.actions import ActionRefused
from anabranch.control.front.agent_client import AgentUnreachable
from anabranch.control.front.row_merge import OWN, merge_row, merge_traffic
from anabranch.dashboard.collectors.gates import GateCollector
from anabranch.dashboard.state_delta import StateDelta, kind_of

if TYPE_CHECKING:
    from anabranch.control.front.front_rules import FrontRules
    from anabranch.control.front.node_link import NodeLink
    from anabranch.dashboard.row_source import Tell
    from anabranch.dashboard.state_delta import StateSheet

WATCH: Final = "/v1/watch"
AGAIN_S: Final = 0.2
FIRST_S: Final = 2.0
"""How long a new page waits for the rows of all nodes that can answer."""


class NodeRows:
    """The rows of all nodes; see `RowSource`.

    Args:
        links: Node id -> its link.
        rules: The rules of the cluster.
        tell: See `Tell`.
    """

    def __init__(self, links: Mapping[int, NodeLink], rules: FrontRules, tell: Tell) -> None:
        self._links = links
        self._rules = rules
        self._tell = tell
        self._gates = GateCollector(tell)
        self._rows: dict[int, dict[str, Any]] = {}
        self._changed: set[str] = set()
        """The keys to merge again."""
        self._frozen: set[int] = set()
        self._looked = False
        self._following: dict[int, asyncio.Task[None]] = {}
        self._begun: dict[int, asyncio.Event] = {}
        self._traffic: dict[int, Mapping[str, Any]] = {}
        """The last second of each node."""

    async def refresh(self) -> None:
        """Ask the agents, unless a page is open and they report by themselves."""
        waits = [self._first(link) if self._following else self._ask(link) for link in self._links.values()]
        await asyncio.gather(*waits)

    def collect(self, sheet: StateSheet) -> None:
        """See RowSource."""
        frozen = {one for one, link in self._links.items() if link.node.frozen}
        for node_id in frozen ^ self._frozen:
            self._changed.update(self._rows.get(node_id, ()))
        self._frozen = frozen
        changed, self._changed = self._changed, set()
        for key in changed:
            if kind_of(key) not in OWN:
                reported = {node: rows[key] for node, rows in self._rows.items() if key in rows}
                self._put(sheet, key, merge_row(key, reported, frozen))
        for node_id in self._links:
            sheet.put(f"node/{node_id}", self._node(node_id))
        rules = {f"rule/{one['name']}": one for one in self._rules.known_rows()}
        sheet.keep("rule", rules)
        for key, row in rules.items():
            sheet.put(key, row)
        self._gates.collect(sheet)
        self._looked = True

    def open(self) -> None:
        """See RowSource."""
        for node_id, link in self._links.items():
            self._begun[node_id] = asyncio.Event()
            self._following[node_id] = asyncio.create_task(self._follow(link))

    def close(self) -> None:
        """See RowSource."""
        for task in self._following.values():
            task.cancel()
        self._following.clear()
        self._traffic.clear()

    def take_traffic(self) -> dict[str, Any] | None:
        """See RowSource."""
        if not self._following:
            return None
        return merge_traffic(self._traffic.values())

    def _put(self, sheet: StateSheet, key: str, row: Any) -> None:
        if row is None:
            sheet.drop(key)
            return
        if kind_of(key) == "group" and self._looked:
            before = sheet.rows.get(key, {"state": "", "generation": -1})
            if (before["state"], before["generation"]) != (row["state"], row["generation"]):
                detail = {"state": row["state"], "generation": row["generation"], "members": len(row["members"])}
                self._tell("rebalance", group=row["group"], **detail)
        sheet.put(key, row)

    def _node(self, node_id: int) -> dict[str, Any]:
        node = self._links[node_id].node
        row: dict[str, Any] = {"node": node_id, "host": node.host, "port": node.port, "state": "dead"}
        if reason := node.refusal:
            row["refused"] = reason
        own = self._rows.get(node_id, {}).get(f"node/{node_id}")
        if not node.running or own is None:
            return row
        return {**own, **row, "state": "frozen" if node_id in self._frozen else "alive"}

    async def _first(self, link: NodeLink) -> None:
        """Wait until a node has sent its first rows, if it can."""
        if link.reachable:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_S):
                    await self._begun[link.node_id].wait()

    async def _ask(self, link: NodeLink) -> None:
        if not link.node.running:
            self._set(link.node_id, {})
        elif link.reachable:
            with contextlib.suppress(AgentUnreachable, ActionRefused):
                self._set(link.node_id, (await link.client.ask("GET", WATCH))["rows"])

    async def _follow(self, link: NodeLink) -> None:
        """Follow the rows of one node; a node that has ended has none."""
        while True:
            if link.reachable:
                with contextlib.suppress(AgentUnreachable, ActionRefused):
                    async for kind, body in link.client.follow(WATCH):
                        self._on_message(link.node_id, kind, body)
                self._set(link.node_id, {})
                self._traffic.pop(link.node_id, None)
            await asyncio.sleep(AGAIN_S)

    def _on_message(self, node_id: int, kind: str, body: Mapping[str, Any]) -> None:
        if kind == "snapshot":
            self._set(node_id, body["rows"])
            self._begun[node_id].set()
        elif kind == "delta":
            delta = StateDelta.from_body(dict(body))
            delta.apply(self._rows[node_id])
            self._on_change(node_id, (*delta.put, *delta.gone))
        else:
            self._traffic[node_id] = body

    def _set(self, node_id: int, rows: dict[str, Any]) -> None:
        before = self._rows.get(node_id, {})
        self._rows[node_id] = rows
        self._on_change(node_id, (key for key in {**before, **rows} if before.get(key) != rows.get(key)))

    def _on_change(self, node_id: int, keys: Iterable[str]) -> None:
        for key in keys:
            self._changed.add(key)
            row = self._rows[node_id].get(key)
            if row is not None and kind_of(key) == "rule":
                self._rules.on_row(node_id, row)
