"""The metrics that clients push to a cluster of processes: each node keeps those that it got, the front merges them.

A client pushes to any broker, and to another one when that is gone. Its row has the subscription of a broker that knows
the client, the last push of all, and the number of pushes to all. The pushes to a node that has ended are gone.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.front.agent_client import AgentClient
from anabranch.control.front.front import Front
from anabranch.control.route import ControlRequest, Handler, WaitTimedOut
from anabranch.control.telemetry import TelemetryRow, unmet_pushes
from anabranch.control.telemetry_routes import NOT_TAKEN, MetricsRow, awaited_pushes

TELEMETRY: Final = "/v1/telemetry"
LOOK_S: Final = 0.05
"""The pause between two looks at the pushes, for a wait."""
SUBSCRIPTION: Final = ("node", "host", "port", "wanted", "interval_ms", "refused")
"""The columns that come from a broker that knows the client."""
PUSHED_TO: Final = "pushed_to"
"""The node of a row, which the front keeps to itself."""


async def get_telemetry(on: Front, request: ControlRequest) -> list[TelemetryRow]:
    """Get every client that has asked for its subscription, or pushed."""
    return _shown(await _clients(on, TELEMETRY))


async def get_pushed_metrics(on: Front, request: ControlRequest) -> list[MetricsRow]:
    """Get the last push of a client."""
    return _shown(await _known(on, request))


async def get_otlp(on: Front, request: ControlRequest) -> bytes:
    """Get the bytes of a client's last push."""
    client = request.words["client"]
    pushed = [row for row in await _known(on, request) if row["last"] is not None]
    if not pushed:
        raise UnknownNode(f"{client} has not pushed yet")
    newest = max(pushed, key=_pushed_at)
    node_id, path = newest[PUSHED_TO], f"{TELEMETRY}/{quote(newest['instance'], safe='')}/otlp"
    found = await on.ask_each(lambda agent: agent.ask("GET", path), [node_id])
    if not found:
        raise ActionRefused(f"node {node_id}, which has the push, does not answer")
    content: bytes = found[node_id]
    return content


async def wait_for_pushes(on: Front, request: ControlRequest) -> list[TelemetryRow]:
    """Respond when a client has pushed a number of times."""
    client = request.words["client"]
    count, patience_s, terminated = awaited_pushes(request)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + patience_s
    while True:
        rows = [row for row in await _clients(on, TELEMETRY) if client in (row["client"], row["instance"])]
        missing = unmet_pushes(rows, client, count, terminated=terminated)
        if not missing:
            return _shown(rows)
        if loop.time() >= deadline_s:
            raise WaitTimedOut(f"after {patience_s:g} s {missing}")
        await asyncio.sleep(min(LOOK_S, max(deadline_s - loop.time(), 0)))


def _shown(rows: Iterable[Any]) -> list[Any]:
    return [{name: value for name, value in row.items() if name != PUSHED_TO} for row in rows]


async def _known(on: Front, request: ControlRequest) -> list[Any]:
    client = request.words["client"]
    if not (rows := await _clients(on, f"{TELEMETRY}/{quote(client, safe='')}")):
        raise UnknownNode(f"no client {client!r} has requested a subscription")
    return rows


async def _clients(on: Front, path: str) -> list[Any]:
    """The joined rows of all nodes. Raises ActionRefused if no broker accepts client metrics."""

    async def rows_of(agent: AgentClient) -> list[Any] | None:
        try:
            rows: list[Any] = await agent.ask("GET", path)
        except UnknownNode:
            return []
        except ActionRefused:
            return None
        return rows

    found = await on.ask_each(rows_of)
    if all(rows is None for rows in found.values()):
        raise ActionRefused(NOT_TAKEN)
    by_instance: dict[str, list[Any]] = defaultdict(list)
    for node_id, rows in sorted(found.items()):
        for row in rows or ():
            by_instance[row["instance"]].append(_on_front(row, node_id, on.links[node_id].offset_s))
    joined = (_join(rows) for rows in by_instance.values())
    return sorted(joined, key=lambda row: (row["client"], row["instance"]))


def _on_front(row: Any, node_id: int, offset_s: float) -> Any:
    """The row of one node, on the clock of the front."""
    last = row["last"]
    return {**row, PUSHED_TO: node_id, "last": last and {**last, "at": round(last["at"] + offset_s, 6)}}


def _join(rows: Iterable[Any]) -> Any:
    """The row of a client that several nodes know."""
    pushed = max(rows, key=_pushed_at)
    asked = max(rows, key=lambda row: (row["wanted"] is not None, _pushed_at(row)))
    subscription = {name: asked[name] for name in SUBSCRIPTION}
    return {**pushed, **subscription, "pushes": sum(row["pushes"] for row in rows)}


def _pushed_at(row: Any) -> float:
    at_s: float = -math.inf if row["last"] is None else row["last"]["at"]
    return at_s


TELEMETRY_HANDLERS: Final[tuple[Handler, ...]] = (get_telemetry, get_pushed_metrics, get_otlp, wait_for_pushes)
