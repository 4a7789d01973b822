"""The routes of fault rules: add, list, release, await and remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from anabranch.control.actions import UnknownNode
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.route import ControlRequest, Route, WaitTimedOut, timeout_s
from anabranch.faults.rule_json import from_json, schema

if TYPE_CHECKING:
    from anabranch.faults.active_rule import ActiveRule


async def get_faults(on: ControlledCluster, asked: ControlRequest) -> Any:
    """Get every rule, in order."""
    gone = on.faults.removed if asked.query.get("removed") == "true" else ()
    return [armed.row() for armed in (*gone, *on.faults)]


async def add_fault(on: ControlledCluster, asked: ControlRequest) -> Any:
    """Add a rule."""
    return on.faults.add(from_json(asked.body)).row()


async def get_fault(on: ControlledCluster, asked: ControlRequest) -> Any:
    """Get one rule."""
    return _armed(on, asked).row()


async def remove_fault(on: ControlledCluster, asked: ControlRequest) -> Any:
    """Remove a rule."""
    return on.faults.remove(_armed(on, asked).rule.name).row()


async def remove_faults(on: ControlledCluster, asked: ControlRequest) -> Any:
    """Remove all rules."""
    on.faults.clear()
    return {}


async def release_fault(on: ControlledCluster, asked: ControlRequest) -> Any:
    """Release what a rule holds."""
    armed = _armed(on, asked)
    armed.release()
    return armed.row()


async def wait_fault(on: ControlledCluster, asked: ControlRequest) -> Any:
    """Respond when a rule has reached a number of hits."""
    armed = _armed(on, asked)
    hits = asked.query.get("hits", "1")
    if not hits.isdecimal():
        raise ValueError(f"hits is a number, not {hits!r}")
    try:
        await armed.wait_hit(int(hits), timeout_s(asked.query.get("timeout", "")))
    except TimeoutError as error:
        raise WaitTimedOut(str(error)) from None
    return armed.row()


def _armed(on: ControlledCluster, asked: ControlRequest) -> ActiveRule:
    name = asked.words["rule"]
    try:
        return on.faults.get(name)
    except KeyError:
        there = ", ".join(armed.rule.name for armed in on.faults) or "none"
        raise UnknownNode(f"there is no rule {name}; there are {there}") from None


REMOVED: Final = {"removed": "`true`: those, too, that were removed last"}
WAIT: Final = {"hits": "so often; 1 if left out", "timeout": "how long to wait, in seconds; 30 if left out"}
FAULT_ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1/faults", "Every rule, with what it has hit.", get_faults, query=REMOVED),
    Route("POST", "/v1/faults", "Follow a rule from now on.", add_fault, body=schema()["properties"]),
    Route("DELETE", "/v1/faults", "Follow no rule any more.", remove_faults),
    Route("GET", "/v1/faults/{rule}", "One rule.", get_fault),
    Route("DELETE", "/v1/faults/{rule}", "Follow a rule no more, and let go what it holds.", remove_fault),
    Route("POST", "/v1/faults/{rule}/release", "Let go what a rule holds.", release_fault),
    Route(
        "GET",
        "/v1/faults/{rule}/wait",
        "Answers when a rule has hit so often, or with 408.",
        wait_fault,
        query=WAIT,
        waits=True,
    ),
)
