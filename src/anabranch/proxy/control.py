"""The control plane of a proxy: a cluster's routes, of which those that need a cluster in this process are refused.

A refusal names the alternative.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from anabranch.control.actions import ActionRefused
from anabranch.control.capabilities import KINDS_OF_RULES, CapabilitiesRow, capabilities_row
from anabranch.control.route import ControlRequest, Route
from anabranch.control.routes import ROUTES
from anabranch.proxy.proxy import ProxyNodeRow
from anabranch.proxy.unsupported_rules import INSTEAD as RULES_INSTEAD

if TYPE_CHECKING:
    from anabranch.control.events import Events
    from anabranch.faults.faults import Faults
    from anabranch.journal.journal import Journal
    from anabranch.proxy.proxy import Proxy

T = TypeVar("T")

SERVED: Final = ("/v1/events", "/v1/faults", "/v1/journal")
NODES: Final = "/v1/nodes"
CAPABILITIES: Final = "/v1/capabilities"
OWN: Final = (NODES, CAPABILITIES)
"""The paths that a proxy answers in its own way."""
INSTEAD: Final[Mapping[str, str]] = {
    "/v1/nodes/": "a proxy cannot stop a broker; a rule with `brokers` and `disconnect` closes its clients",
    "/v1/topics": "ask the cluster, with any Kafka client through this proxy",
    "/v1/groups": "ask the cluster, with any Kafka client through this proxy",
    "/v1/clock": "a proxy cannot change the clock of its cluster; rules can delay and hold responses",
    "/v1/wait": "a proxy does not see the cluster's state; wait for a rule's hits, or for exchanges of the journal",
}
OTHERWISE: Final = "a proxy does not have the state of its cluster"


@dataclass(frozen=True, slots=True)
class ControlledProxy:
    """The object that a proxy's control plane controls."""

    proxy: Proxy

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine."""
        return await work

    @property
    def events(self) -> Events:
        """The events."""
        return self.proxy.events

    @property
    def faults(self) -> Faults:
        """The fault rules."""
        return self.proxy.faults

    @property
    def journal(self) -> Journal | None:
        """The journal, if one is kept."""
        return self.proxy.journal


async def get_nodes(on: ControlledProxy, request: ControlRequest) -> list[ProxyNodeRow]:
    """Get every known broker, and its port here."""
    return on.proxy.nodes()


async def get_capabilities(on: ControlledProxy, request: ControlRequest) -> CapabilitiesRow:
    """Get what is possible here."""
    refused = {kind: RULES_INSTEAD[kind] for kind in KINDS_OF_RULES if kind in RULES_INSTEAD}
    actions = {
        kind: RULES_INSTEAD["node"].format(value=kind[5:]) for kind in KINDS_OF_RULES if kind.startswith("node=")
    }
    requests = ((route.method, route.path, reason_against(route)) for route in PROXY_ROUTES)
    return capabilities_row(requests, refused | actions)


def reason_against(route: Route) -> str:
    """Why a proxy refuses a route; empty if it serves the route."""
    if route.path.startswith(SERVED) or route.path in OWN:
        return ""
    return next((why for path, why in INSTEAD.items() if route.path.startswith(path)), OTHERWISE)


def _route(route: Route) -> Route:
    if route.path.startswith(SERVED):
        return route
    if route.path == CAPABILITIES:
        return dataclasses.replace(route, handler=get_capabilities)
    if route.path == NODES:
        return dataclasses.replace(route, summary="All known brokers, with their proxy ports.", handler=get_nodes)
    instead = reason_against(route)

    async def refuse(on: ControlledProxy, request: ControlRequest) -> NoReturn:
        raise ActionRefused(instead)

    refuse.__name__ = route.handler.__name__
    return dataclasses.replace(route, summary=f"Refused by a proxy: {instead}.", handler=refuse)


PROXY_ROUTES: Final[tuple[Route, ...]] = tuple(map(_route, ROUTES))
