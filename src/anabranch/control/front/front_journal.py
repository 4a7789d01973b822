"""The journal of a cluster of processes: the journals of its nodes, merged at each query.

The journal of a node that has ended is gone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

from anabranch.control.actions import UnknownNode
from anabranch.control.front.front import Front
from anabranch.control.front.journal_merge import exchange_number, merge_journals, place_of
from anabranch.control.journal_routes import ExplanationRow
from anabranch.control.route import ControlRequest, Done, Handler, WaitTimedOut, timeout_s
from anabranch.journal.capture import capture
from anabranch.journal.entry import ExchangeRow
from anabranch.journal.query import Query

if TYPE_CHECKING:
    from anabranch.control.front.agent_client import AgentClient

JOURNAL: Final = "/v1/journal"
CAPTURE_S: Final = 60.0
"""How long a node may take to send its exchanges with their bytes."""
LOOK_S: Final = 0.05
"""The pause between two looks at the journals, for a wait."""
OWN: Final = ("after", "limit")
"""The conditions that the front evaluates itself."""


async def get_journal(on: Front, request: ControlRequest) -> list[ExchangeRow]:
    """Get the kept exchanges of all nodes."""
    words = dict(request.query)
    with_bytes = {"bytes": "true"} if words.pop("bytes", "") == "true" else {}
    return await find_exchanges(on, words, with_bytes)


async def wait_for_exchanges(on: Front, request: ControlRequest) -> list[ExchangeRow]:
    """Respond when enough exchanges of all nodes match."""
    words = dict(request.query)
    count, patience_s = words.pop("count", "1"), timeout_s(words.pop("timeout", ""))
    if not count.isdecimal():
        raise ValueError(f"count is a number, not {count!r}")
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + patience_s
    while len(found := await find_exchanges(on, words)) < int(count):
        if loop.time() >= deadline_s:
            raise WaitTimedOut(f"after {patience_s:g} s {len(found)} of {count} such exchanges")
        await asyncio.sleep(min(LOOK_S, max(deadline_s - loop.time(), 0)))
    return found


async def explain_exchange(on: Front, request: ControlRequest) -> ExplanationRow:
    """Explain the outcome of one exchange, with the events of all nodes."""
    text = request.words["number"]
    node_ids = sorted(on.links)
    unknown = UnknownNode(f"no exchange {text} is kept on a node that runs")
    if not text.isdecimal() or place_of(int(text)) >= len(node_ids):
        raise unknown
    place = place_of(int(text))
    link = on.links[node_ids[place]]
    if not link.reachable:
        raise unknown
    await on.settle()
    for between_brokers in ("false", "true"):
        rows: list[ExchangeRow] = await link.client.ask("GET", JOURNAL, query={"between_brokers": between_brokers})
        for row in rows:
            if exchange_number(row["at"] + link.offset_s, place) == int(text):
                events = [{**one.row(), "at": one.at_s - link.offset_s} for one in on.events.after(0)]
                path = f"/v1/agent/journal/{row['number']}/explain"
                found = await link.client.ask("POST", path, {"events": events})
                return {"number": int(text), "explained": found["explained"]}
    raise unknown


async def get_capture(on: Front, request: ControlRequest) -> bytes:
    """Get the exchanges of all nodes as a capture file, which has one section for each node."""
    words = {name: text for name, text in request.query.items() if name not in OWN}
    _check(on, request.query)
    if words.keys() == request.query.keys():
        sections = await on.ask_each(_capturing(words), _nodes(words))
    else:  # both conditions select the last exchanges of each node
        sections = {}
        for node_id, count in Counter(row["node"] for row in await find_exchanges(on, request.query)).items():
            sections |= await on.ask_each(_capturing({**words, "limit": str(count)}), [node_id])
    return b"".join(sections[one] for one in sorted(sections)) or capture((), 0.0)


def _capturing(words: Mapping[str, str]) -> Callable[[AgentClient], Coroutine[Any, Any, bytes]]:
    return lambda client: client.ask("GET", f"{JOURNAL}/capture", query=words, timeout_s=CAPTURE_S)


async def clear_journal(on: Front, request: ControlRequest) -> Done:
    """Clear the journals of all nodes."""
    await on.ask_each(lambda client: client.ask("DELETE", JOURNAL))
    return {}


async def find_exchanges(
    on: Front, words: Mapping[str, str], more: Mapping[str, str] | None = None
) -> list[ExchangeRow]:
    """Return the kept exchanges of all nodes that match the fields of a query; `more` are parameters for the nodes."""
    query = _check(on, words)
    request = {**{name: text for name, text in words.items() if name not in OWN}, **(more or {})}
    if query.limit:
        request["limit"] = str(query.limit)
    until_s = asyncio.get_running_loop().time()
    journals = await on.ask_each(lambda client: client.ask("GET", JOURNAL, query=request), _nodes(words))
    return merge_journals(
        journals,
        sorted(on.links),
        {one.node_id: one.offset_s for one in on.links.values()},
        after=query.after,
        until_s=until_s,
        limit=query.limit,
    )


def _check(on: Front, words: Mapping[str, Any]) -> Query:
    """Parse a query. InvalidRule says why no exchange can match."""
    return Query.of(words, sorted(on.links))


def _nodes(words: Mapping[str, str]) -> Collection[int] | None:
    """The nodes that a query is about; None for all."""
    return {int(one) for one in words["brokers"].split(",")} if words.get("brokers") else None


FRONT_JOURNAL_HANDLERS: Final[tuple[Handler, ...]] = (
    get_journal,
    wait_for_exchanges,
    explain_exchange,
    get_capture,
    clear_journal,
)
