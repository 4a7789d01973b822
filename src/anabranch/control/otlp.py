"""Decodes pushed client metrics (OTLP MetricsData) into rows. The one module that imports opentelemetry.

A row is one data point. Attributes that apply to a whole push, such as the client's rack, are added to each row.
Decoding a push needs up to fifty times its size in memory: pushes above one mebibyte, more than real clients send, are
not decoded. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, NotRequired, TypedDict, cast

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

Row = dict[str, Any]


class PointRow(TypedDict):
    """A data point of pushed metrics. A distribution has `count` and `sum` in place of a value."""

    name: Annotated[str, "the metric's name"]
    unit: str
    kind: Annotated[str, "gauge, sum, histogram, exponential histogram, or summary"]
    temporality: Annotated[str | None, "delta or cumulative"]
    value: Annotated[float | str | None, "a number without JSON form is a text: NaN, Infinity, -Infinity"]
    count: NotRequired[int]
    sum: NotRequired[float | str]
    from_ns: Annotated[int, "the start of the time span, in nanoseconds since the epoch"]
    until_ns: int
    attributes: dict[str, Any]


READ_BYTES_MAX: Final = 1 << 20
POINTS_MAX: Final = 5000
KINDS: Final = {
    "gauge": "gauge",
    "sum": "sum",
    "histogram": "histogram",
    "exponential_histogram": "exponential histogram",
    "summary": "summary",
}
TEMPORALITIES: Final = {1: "delta", 2: "cumulative"}


def parse_error(content: bytes) -> str:
    """The reason why these metrics cannot be shown, and the remedy; empty if they can."""
    try:
        from opentelemetry.proto.metrics.v1 import metrics_pb2  # noqa: F401
    except ImportError:
        return "to show them: pip install 'anabranch[telemetry]'"
    if len(content) > READ_BYTES_MAX:
        return f"{len(content)} bytes, and up to {READ_BYTES_MAX} are read; save them to a file"
    return ""


def points(content: bytes, points_max: int = POINTS_MAX) -> list[PointRow]:
    """The data points, up to `points_max`. Raises ValueError if the bytes are not OTLP."""
    return list(islice(_points(_parse(content)), points_max))


def _parse(content: bytes) -> MetricsData:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        data: MetricsData = MetricsData.FromString(content)
    except DecodeError as error:
        raise ValueError(f"not OTLP metrics: {error}") from None
    return data


def _points(data: MetricsData) -> Iterator[PointRow]:
    for resource in data.resource_metrics:
        of_all = _attributes(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield from _points_of(metric, of_all)


def _points_of(metric: Metric, of_all: Row) -> Iterator[PointRow]:
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    data = getattr(metric, kind)
    fields = {
        "name": metric.name,
        "unit": metric.unit,
        "kind": KINDS[kind],
        "temporality": TEMPORALITIES.get(getattr(data, "aggregation_temporality", 0)),
    }
    for point in data.data_points:
        row = {**fields, **_measured_value(point), "attributes": of_all | _attributes(point.attributes)}
        yield cast("PointRow", row)


def _measured_value(point: Any) -> Row:
    """The value of one data point (`value`, or the fields of a distribution) and its time."""
    spans = {"from_ns": point.start_time_unix_nano, "until_ns": point.time_unix_nano}
    if "as_double" in point.DESCRIPTOR.fields_by_name:
        which = point.WhichOneof("value")
        return {"value": None if which is None else _number(getattr(point, which)), **spans}
    return {"value": None, "count": point.count, "sum": _number(point.sum), **spans}


def _number(number: float) -> float | str:
    """The number; for a number without JSON form, its name as in protobuf's JSON."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _attributes(pairs: Iterable[KeyValue]) -> Row:
    return {one.key: _value(one.value) for one in pairs}


def _value(any_value: AnyValue) -> Any:
    which = any_value.WhichOneof("value")
    if which is None:
        return None
    if which == "array_value":
        return [_value(one) for one in any_value.array_value.values]
    if which == "kvlist_value":
        return _attributes(any_value.kvlist_value.values)
    if which == "double_value":
        return _number(any_value.double_value)
    return any_value.bytes_value.hex() if which == "bytes_value" else getattr(any_value, which)
