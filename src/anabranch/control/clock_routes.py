"""The routes of a cluster's clock: read it, advance it, change its pace."""

from __future__ import annotations

from typing import Any, Final

from anabranch.clock.cluster_clock import ClusterClock
from anabranch.clock.spans import parse_seconds
from anabranch.control.actions import ActionRefused
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.route import ControlRequest, Route


async def get_clock(on: ControlledCluster, asked: ControlRequest) -> Any:
    """Get the cluster's time."""
    return _row(_clock(on))


async def change_clock(on: ControlledCluster, asked: ControlRequest) -> Any:
    """Change the clock's pace, advance it, or both; respond when everything due until then has happened."""
    clock, body = _clock(on), asked.body
    if not body or set(body) - set(CHANGE):
        raise ValueError('say {"advance": "45s"}, or {"pace": 10}, where 0 stands still')
    pace = body.get("pace", clock.scale)
    if isinstance(pace, bool) or not isinstance(pace, int | float):
        raise ValueError(f"the pace is a number, such as 10 or 0, not {pace!r}")
    span_s = parse_seconds(body.get("advance", 0))
    if "pace" in body:
        clock.run_at(pace)
        on.events.publish("clock", pace=pace)
    if "advance" in body:
        await clock.advance(span_s)
        on.events.publish("clock", advanced_s=span_s)
    return _row(clock)


def _clock(on: ControlledCluster) -> ClusterClock:
    if on.clock is None:
        raise ActionRefused(
            "this cluster runs on a loop that has one time for all; `anabranch up --control` has another"
        )
    return on.clock


def _row(clock: ClusterClock) -> dict[str, Any]:
    return {"time_ms": clock.day_ms(), "at": round(clock.now_s(), 6), "pace": clock.scale}


CHANGE: Final[dict[str, str | dict[str, list[str]]]] = {"advance": {"type": ["string", "number"]}, "pace": "number"}
CLOCK_ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1/clock", "What time it is in the cluster, and at which pace it goes.", get_clock),
    Route("POST", "/v1/clock", "Move the clock on, or change its pace; 0 stands still.", change_clock, body=CHANGE),
)
