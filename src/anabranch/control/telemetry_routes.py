"""The routes of the metrics that clients push: list the clients, get the last push, wait for pushes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypedDict

from anabranch.control import otlp
from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.otlp import PointRow
from anabranch.control.route import TIMEOUT, ControlRequest, Route, WaitTimedOut, timeout_s
from anabranch.control.telemetry import TelemetryRow

if TYPE_CHECKING:
    from anabranch.control.telemetry import ClientTelemetry


NOT_TAKEN: Final = (
    "no broker accepts client metrics; start the cluster with --kafka 4.1 --config client.telemetry.enable=true"
)


class MetricsRow(TelemetryRow):
    """A client with the metrics of its last push."""

    metrics: Annotated[list[PointRow] | None, "null if they cannot be read"]
    unread: Annotated[str, "why they cannot be read; empty if they can"]


class PushesQuery(TypedDict, total=False):
    """The pushes to wait for."""

    pushes: Annotated[int, "the number of pushes; 1 if left out"]
    terminated: Annotated[bool, "also wait for the last push of a client that closes"]
    timeout: float


async def get_telemetry(on: ControlledCluster, request: ControlRequest) -> list[TelemetryRow]:
    """Get every client that has asked for its subscription, or pushed."""
    return _telemetry(on).rows()


async def get_pushed_metrics(on: ControlledCluster, request: ControlRequest) -> list[MetricsRow]:
    """Get the last push of a client."""
    telemetry = _telemetry(on)
    return [_with_metrics(row, telemetry.metrics_of(row["instance"])) for row in _rows(telemetry, request)]


async def get_otlp(on: ControlledCluster, request: ControlRequest) -> bytes:
    """Get the bytes of a client's last push."""
    telemetry = _telemetry(on)
    pushed = telemetry.last(request.words["client"])
    if pushed is None:
        _rows(telemetry, request)
        raise UnknownNode(f"{request.words['client']} has not pushed yet")
    return pushed.metrics


async def wait_for_pushes(on: ControlledCluster, request: ControlRequest) -> list[TelemetryRow]:
    """Respond when a client has pushed a number of times."""
    count, patience_s, terminated = awaited_pushes(request)
    try:
        return await _telemetry(on).wait_for(request.words["client"], count, patience_s, terminated=terminated)
    except TimeoutError as error:
        raise WaitTimedOut(str(error)) from None


def awaited_pushes(request: ControlRequest) -> tuple[int, float, bool]:
    """The number of pushes to wait for, how long, and whether for the last one, too. Raises ValueError."""
    count = request.query.get("pushes", "1")
    if not count.isdecimal():
        raise ValueError(f"pushes is a number, not {count!r}")
    return int(count), timeout_s(request.query.get("timeout", "")), request.query.get("terminated", "") == "true"


def _rows(telemetry: ClientTelemetry, request: ControlRequest) -> list[TelemetryRow]:
    client = request.words["client"]
    if not (rows := telemetry.rows(client)):
        raise UnknownNode(f"no client {client!r} has requested a subscription")
    return rows


def _with_metrics(row: TelemetryRow, content: bytes) -> MetricsRow:
    if unread := otlp.parse_error(content):
        return {**row, "metrics": None, "unread": unread}
    try:
        return {**row, "metrics": otlp.points(content), "unread": ""}
    except ValueError as error:
        return {**row, "metrics": None, "unread": str(error)}


def _telemetry(on: ControlledCluster) -> ClientTelemetry:
    if on.telemetry is None or not on.telemetry.is_taken:
        raise ActionRefused(NOT_TAKEN)
    return on.telemetry


TELEMETRY_ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1/telemetry", "All clients that requested a subscription or pushed metrics.", get_telemetry),
    Route(
        "GET",
        "/v1/telemetry/{client}",
        "One client, by client id or client instance id, with its last pushed metrics.",
        get_pushed_metrics,
    ),
    Route(
        "GET",
        "/v1/telemetry/{client}/wait",
        "Wait until a client has pushed this often; 408 with the reason at the timeout.",
        wait_for_pushes,
        query=PushesQuery,
        query_help=TIMEOUT,
        waits=True,
    ),
    Route(
        "GET",
        "/v1/telemetry/{client}/otlp",
        "The last push of a client, unchanged: OTLP MetricsData, for collectors.",
        get_otlp,
        gives_file=True,
    ),
)
