"""The routes of a node's control agent: those of a cluster that one node can serve, and its own.

The other routes are refused with a sentence that names the front of the cluster.

A front uses an agent in these steps:

1. `POST /v1/agent/lease {"front": ID}`, and again before the lease of ten seconds ends. The response lists the front's
   rules that the agent has: none after the node's process or its lease has ended. 409 names another front.
2. `GET /v1/agent/decisions?front=ID` with `Accept: text/event-stream`. The first message is `ready`, each `decision` is
   a question.
3. `POST /v1/faults?front=ID` for a rule that ends with the lease; with `&decided_by=front` its requests are questions.
4. `POST /v1/agent/decisions/NUMBER?front=ID {"hit": true}` answers a question; with `"spent": true` the rule asks no
   more. A hit that ends or stops the node's process may get no response.
5. `DELETE /v1/agent/lease?front=ID` at the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, NoReturn, NotRequired, TypedDict

from anabranch.control.actions import ActionRefused
from anabranch.control.agent import AgentRow, ControlledNode, LeaseRow
from anabranch.control.agent_rules import ELSEWHERE, FRONT
from anabranch.control.capabilities import CapabilitiesRow, capabilities_row
from anabranch.control.decisions import QuestionRow
from anabranch.control.events import Event, EventRow
from anabranch.control.journal_routes import ExplanationRow, explanation
from anabranch.control.route import ControlRequest, Done, Route
from anabranch.control.routes import ROUTES, ClockOffsetBody, offset_ms_of
from anabranch.faults.active_rule import Decision, RuleRow
from anabranch.faults.rule_json import from_json

SERVED_BELOW: Final = ("/v1/events", "/v1/faults", "/v1/journal", "/v1/telemetry")
SERVED: Final = frozenset(
    ("GET", path) for path in ("/v1/state", "/v1/nodes", "/v1/topics", "/v1/topics/{topic}", "/v1/groups", "/v1/watch")
)
"""Further routes, whose responses show what this node knows."""
INSTEAD: Final[Mapping[str, str]] = {
    "/v1/nodes/": f"an agent is part of its node's process; {FRONT}, or send the process a signal",
    "/v1/topics": "an agent does not change topics or records; use any Kafka client",
    "/v1/groups": "an agent does not change groups; use any Kafka client",
    "/v1/clock": "a node in a process of its own has the time of its machine",
    "/v1/state/": "an agent cannot stop its node and replace the node's data",
    "/v1/wait": f"a node does not see the whole cluster; {FRONT}",
}
RULES_ELSEWHERE: Final[Mapping[str, str]] = {
    "on": f"an agent acts on its own node only; {FRONT}",
    **{f"node={action}": f"{reason}; {FRONT}" for action, reason in ELSEWHERE.items()},
}
OTHERWISE: Final = f"an agent serves one node, not a cluster; {FRONT}"
BY_FRONT: Final = "front"
EVENTS_BODY_BYTES_MAX: Final = 16 << 20
RULES: Final = "/v1/faults"
ADD: Final = ("POST", RULES)
WATCH: Final = ("GET", "/v1/watch")
CAPABILITIES: Final = ("GET", "/v1/capabilities")


class AddFaultQuery(TypedDict, total=False):
    """The front that adds a rule."""

    front: Annotated[str, "the front whose lease the rule has; none if left out"]
    decided_by: Annotated[str, "`front`: the front decides for each request whether the rule hits it"]


class FrontQuery(TypedDict):
    """The front that asks."""

    front: Annotated[str, "the front that holds the lease"]


class RulesQuery(TypedDict, total=False):
    """The front that changes rules."""

    front: Annotated[str, "the front that holds the lease; others are refused while one does"]


class LeaseBody(TypedDict):
    """The front that wants the lease."""

    front: Annotated[str, "the name of the front, different for each front and start"]


class EventsBody(TypedDict):
    """The events of a cluster."""

    events: Annotated[list[EventRow], "on the clock of this node"]


class DecisionBody(TypedDict):
    """The decision on a request."""

    hit: Annotated[bool, "whether the rule hits the request"]
    spent: NotRequired[Annotated[bool, "whether the rule can hit no further request"]]


async def get_agent(on: ControlledNode, request: ControlRequest) -> AgentRow:
    """Get the agent."""
    return on.row()


async def get_capabilities(on: ControlledNode, request: ControlRequest) -> CapabilitiesRow:
    """Get what is possible here."""
    return capabilities_row(((one.method, one.path, reason_against(one)) for one in AGENT_ROUTES), RULES_ELSEWHERE)


async def add_fault(on: ControlledNode, request: ControlRequest) -> RuleRow:
    """Add a rule."""
    decided_by = request.query.get("decided_by", "")
    if decided_by not in ("", BY_FRONT):
        raise ValueError(f"decided_by is {BY_FRONT}, not {decided_by!r}")
    rule = from_json(request.body)
    return on.add_rule(rule, request.query.get("front", ""), decided_by_front=decided_by == BY_FRONT).row()


async def renew_lease(on: ControlledNode, request: ControlRequest) -> LeaseRow:
    """Give the lease to a front, or extend it."""
    front = request.body.get("front")
    if not isinstance(front, str):
        raise ValueError("front is the name of the front")
    return on.renew_lease(front)


async def end_lease(on: ControlledNode, request: ControlRequest) -> Done:
    """End the lease of a front, and remove its rules."""
    on.end_lease(request.query.get("front", ""))
    return {}


async def shift_clock(on: ControlledNode, request: ControlRequest) -> Done:
    """Set the node's time of day ahead or behind. Raises ActionRefused if the front does not hold the lease."""
    on.check_front(request.query.get("front", ""))
    on.shift_clock(offset_ms_of(request))
    return {}


async def get_decisions(on: ControlledNode, request: ControlRequest) -> list[QuestionRow]:
    """Get the open questions."""
    on.check_front(request.query.get("front", ""))
    return on.decisions.rows


def follow_decisions(on: ControlledNode, request: ControlRequest) -> AsyncGenerator[tuple[str, Any], None]:
    """Follow the questions. Raises ActionRefused if the front does not hold the lease."""
    on.check_front(request.query.get("front", ""))
    return _questions(on)


async def _questions(on: ControlledNode) -> AsyncGenerator[tuple[str, Any], None]:
    async with contextlib.aclosing(on.decisions.follow()) as questions:
        async for row in questions:
            yield ("ready", {"node": on.node_id}) if row is None else ("decision", row)


async def decide(on: ControlledNode, request: ControlRequest) -> Done:
    """Answer a question. Raises ActionRefused while another front holds the lease."""
    on.refuse_others(request.query.get("front", ""))
    number, hit, spent = request.words["question"], request.body.get("hit"), request.body.get("spent", False)
    if not number.isdecimal() or not isinstance(hit, bool) or not isinstance(spent, bool):
        raise ValueError('a decision on a question such as 7 is {"hit": true}')
    on.decisions.answer(int(number), Decision(hit, spent))
    return {}


async def explain_with_events(on: ControlledNode, request: ControlRequest) -> ExplanationRow:
    """Explain an exchange of this node with the events of the whole cluster."""
    number, rows = request.words["number"], request.body.get("events")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and {"at", "kind"} <= row.keys() for row in rows):
        raise ValueError("events are the events of the cluster, as rows")
    events = [Event(0, row["at"], row["kind"], row) for row in rows]
    return explanation(on.journal, number, events)


def reason_against(route: Route) -> str:
    """Why an agent refuses a route; empty if it serves the route."""
    if route.path.startswith(SERVED_BELOW) or (route.method, route.path) in SERVED or route in OWN_ROUTES:
        return ""
    return next((why for path, why in INSTEAD.items() if route.path.startswith(path)), OTHERWISE)


def follow_rows(on: ControlledNode, request: ControlRequest) -> AsyncGenerator[tuple[str, Any], None]:
    """Follow the dashboard rows that this node knows."""
    return _row_messages(on)


async def _row_messages(on: ControlledNode) -> AsyncGenerator[tuple[str, Any], None]:
    async with contextlib.aclosing(on.feed.follow()) as messages:
        async for kind, body in messages:
            yield kind, json.loads(body)


def _of_front(handler: Callable[[Any, ControlRequest], Awaitable[Any]]) -> Callable[[Any, ControlRequest], Any]:
    """Refuse a request while another front than its own holds the lease."""

    @functools.wraps(handler)
    async def checked(on: ControlledNode, request: ControlRequest) -> Any:
        on.refuse_others(request.query.get("front", ""))
        return await handler(on, request)

    return checked


def _route(route: Route) -> Route:
    if (route.method, route.path) == WATCH:
        return dataclasses.replace(route, stream=follow_rows)
    if (route.method, route.path) == ADD:
        return dataclasses.replace(route, handler=_of_front(add_fault), query=AddFaultQuery)
    if route.path.startswith(RULES) and route.method != "GET":
        return dataclasses.replace(route, handler=_of_front(route.handler), query=RulesQuery)
    reason = reason_against(route)
    if not reason:
        return route

    async def refuse(on: ControlledNode, request: ControlRequest) -> NoReturn:
        raise ActionRefused(reason)

    refuse.__name__ = route.handler.__name__
    return dataclasses.replace(route, summary=f"Refused by an agent: {reason}.", handler=refuse)


OWN_ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1/agent", "The node's process, and its clocks.", get_agent),
    Route("POST", "/v1/agent/lease", "Give the lease to a front, or extend it.", renew_lease, body=LeaseBody),
    Route("DELETE", "/v1/agent/lease", "End the lease of a front, and remove its rules.", end_lease, query=FrontQuery),
    Route(
        "POST",
        "/v1/agent/clock",
        "Set the node's time of day ahead or behind, until the front's lease ends.",
        shift_clock,
        query=FrontQuery,
        body=ClockOffsetBody,
    ),
    Route(
        "GET",
        "/v1/agent/decisions",
        "The requests that wait for the front's decision; with Accept: text/event-stream, an endless stream.",
        get_decisions,
        query=FrontQuery,
        stream=follow_decisions,
    ),
    Route(
        "POST",
        "/v1/agent/decisions/{question}",
        "Decide whether a rule hits a request.",
        decide,
        query=FrontQuery,
        body=DecisionBody,
    ),
    Route(
        "POST",
        "/v1/agent/journal/{number}/explain",
        "Explain the outcome of one exchange with the events of all nodes, which a front has.",
        explain_with_events,
        body=EventsBody,
        body_bytes_max=EVENTS_BODY_BYTES_MAX,
    ),
    Route(*CAPABILITIES, "The requests and rules that are possible here, or why not.", get_capabilities),
)
AGENT_ROUTES: Final[tuple[Route, ...]] = (
    *(_route(one) for one in ROUTES if (one.method, one.path) != CAPABILITIES),
    *OWN_ROUTES,
)
