"""The routes of fault rules: add, list, release, await and remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypedDict

from anabranch.control.actions import UnknownNode
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.route import TIMEOUT, ControlRequest, Done, Route, WaitTimedOut, timeout_s
from anabranch.faults.active_rule import RuleRow
from anabranch.faults.rule_fields import RuleFields
from anabranch.faults.rule_json import from_json

if TYPE_CHECKING:
    from anabranch.faults.active_rule import ActiveRule


class FaultsQuery(TypedDict, total=False):
    """The rules to get."""

    removed: Annotated[bool, "also the rules that were removed last"]


class HitsQuery(TypedDict, total=False):
    """The hits to wait for."""

    hits: Annotated[int, "the number of hits; 1 if left out"]
    timeout: float


async def get_faults(on: ControlledCluster, request: ControlRequest) -> list[RuleRow]:
    """Get every rule, in order."""
    gone = on.faults.removed if request.query.get("removed") == "true" else ()
    return [armed.row() for armed in (*gone, *on.faults)]


async def add_fault(on: ControlledCluster, request: ControlRequest) -> RuleRow:
    """Add a rule."""
    return on.faults.add(from_json(request.body)).row()


async def get_fault(on: ControlledCluster, request: ControlRequest) -> RuleRow:
    """Get one rule."""
    return _armed(on, request).row()


async def remove_fault(on: ControlledCluster, request: ControlRequest) -> RuleRow:
    """Remove a rule."""
    return on.faults.remove(_armed(on, request).rule.name).row()


async def remove_faults(on: ControlledCluster, request: ControlRequest) -> Done:
    """Remove all rules."""
    on.faults.clear()
    return {}


async def release_fault(on: ControlledCluster, request: ControlRequest) -> RuleRow:
    """Release what a rule holds."""
    armed = _armed(on, request)
    armed.release()
    return armed.row()


async def wait_for_hits(on: ControlledCluster, request: ControlRequest) -> RuleRow:
    """Respond when a rule has reached a number of hits."""
    armed = _armed(on, request)
    hits = request.query.get("hits", "1")
    if not hits.isdecimal():
        raise ValueError(f"hits is a number, not {hits!r}")
    try:
        await armed.wait_hit(int(hits), timeout_s(request.query.get("timeout", "")))
    except TimeoutError as error:
        raise WaitTimedOut(str(error)) from None
    return armed.row()


def _armed(on: ControlledCluster, request: ControlRequest) -> ActiveRule:
    name = request.words["rule"]
    try:
        return on.faults.get(name)
    except KeyError:
        there = ", ".join(armed.rule.name for armed in on.faults) or "none"
        raise UnknownNode(f"there is no rule {name}; there are {there}") from None


FAULT_ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1/faults", "All rules with their hits.", get_faults, query=FaultsQuery),
    Route("POST", "/v1/faults", "Add a rule.", add_fault, body=RuleFields),
    Route("DELETE", "/v1/faults", "Remove all rules.", remove_faults),
    Route("GET", "/v1/faults/{rule}", "One rule.", get_fault),
    Route("DELETE", "/v1/faults/{rule}", "Remove a rule, and release the requests that it holds.", remove_fault),
    Route("POST", "/v1/faults/{rule}/release", "Release the requests that a rule holds.", release_fault),
    Route(
        "GET",
        "/v1/faults/{rule}/wait",
        "Wait until a rule has this many hits; 408 at the timeout.",
        wait_for_hits,
        query=HitsQuery,
        query_help=TIMEOUT,
        waits=True,
    ),
)
