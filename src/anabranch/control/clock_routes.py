"""The routes of a cluster's clock: read it, advance it, change its pace."""

from __future__ import annotations

from typing import Annotated, Final, TypedDict

from anabranch.clock.cluster_clock import ClusterClock
from anabranch.clock.spans import parse_seconds
from anabranch.control.actions import ActionRefused
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.route import ControlRequest, Route


class ClockRow(TypedDict):
    """The cluster's clock."""

    time_ms: Annotated[int, "the time of day, in milliseconds since the epoch"]
    at: Annotated[float, "the clock of events, in seconds"]
    pace: Annotated[float, "cluster seconds per real second; 0 if stopped"]


class ClockBody(TypedDict, total=False):
    """A change of the clock: one field, or both."""

    advance: Annotated[str | float, 'how far: "500ms", "45s", "5m", "2h", "7d", or seconds']
    pace: Annotated[float, "cluster seconds per real second; 0 stops the clock"]


async def get_clock(on: ControlledCluster, request: ControlRequest) -> ClockRow:
    """Get the cluster's time."""
    return _row(_clock(on))


async def change_clock(on: ControlledCluster, request: ControlRequest) -> ClockRow:
    """Change the clock's pace, advance it, or both; respond when everything due until then has happened."""
    clock, body = _clock(on), request.body
    if not body or body.keys() - ClockBody.__annotations__.keys():
        raise ValueError('send {"advance": "45s"}, or {"pace": 10}; pace 0 stops the clock')
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
        raise ActionRefused("this cluster has no clock of its own; start it with `anabranch up --control`")
    return on.clock


def _row(clock: ClusterClock) -> ClockRow:
    return {"time_ms": clock.day_ms(), "at": round(clock.now_s(), 6), "pace": clock.scale}


CLOCK_ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1/clock", "The time and pace of the cluster's clock.", get_clock),
    Route("POST", "/v1/clock", "Advance the clock, or change its pace; 0 stops it.", change_clock, body=ClockBody),
)
