"""The routes of a node's control agent: those of a cluster that one node can serve, and its own.

The other routes are refused with a sentence that names the front of the cluster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final, NoReturn

from anabranch.control.actions import ActionRefused
from anabranch.control.agent import AgentRow, ControlledNode
from anabranch.control.agent_rules import ELSEWHERE, FRONT
from anabranch.control.capabilities import CapabilitiesRow, capabilities_row
from anabranch.control.route import ControlRequest, Route
from anabranch.control.routes import ROUTES
from anabranch.faults.active_rule import RuleRow
from anabranch.faults.rule_json import from_json

SERVED_BELOW: Final = ("/v1/events", "/v1/faults", "/v1/journal")
SERVED: Final = frozenset(
    ("GET", path) for path in ("/v1/state", "/v1/nodes", "/v1/topics", "/v1/topics/{topic}", "/v1/groups")
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
ADD: Final = ("POST", "/v1/faults")
CAPABILITIES: Final = ("GET", "/v1/capabilities")


async def get_agent(on: ControlledNode, asked: ControlRequest) -> AgentRow:
    """Get the agent."""
    return on.row()


async def get_capabilities(on: ControlledNode, asked: ControlRequest) -> CapabilitiesRow:
    """Get what is possible here."""
    return capabilities_row(((one.method, one.path, reason_against(one)) for one in AGENT_ROUTES), RULES_ELSEWHERE)


async def add_fault(on: ControlledNode, asked: ControlRequest) -> RuleRow:
    """Add a rule."""
    return on.add_rule(from_json(asked.body)).row()


def reason_against(route: Route) -> str:
    """Why an agent refuses a route; empty if it serves the route."""
    if route.path.startswith(SERVED_BELOW) or (route.method, route.path) in SERVED or route in OWN_ROUTES:
        return ""
    return next((why for path, why in INSTEAD.items() if route.path.startswith(path)), OTHERWISE)


def _route(route: Route) -> Route:
    if (route.method, route.path) == ADD:
        return dataclasses.replace(route, handler=add_fault)
    reason = reason_against(route)
    if not reason:
        return route

    async def refuse(on: ControlledNode, asked: ControlRequest) -> NoReturn:
        raise ActionRefused(reason)

    refuse.__name__ = route.handler.__name__
    return dataclasses.replace(route, summary=f"Refused by an agent: {reason}.", handler=refuse)


OWN_ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1/agent", "The node's process, and its clocks.", get_agent),
    Route(*CAPABILITIES, "The requests and rules that are possible here, or why not.", get_capabilities),
)
AGENT_ROUTES: Final[tuple[Route, ...]] = (
    *(_route(one) for one in ROUTES if (one.method, one.path) != CAPABILITIES),
    *OWN_ROUTES,
)
