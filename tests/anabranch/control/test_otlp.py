"""Pushed OTLP metrics are decoded within bounds; malformed ones are reported."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("opentelemetry.proto", reason="NO EXTRA: pip install 'anabranch[telemetry]'; OTLP was NOT read")

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from anabranch.control.otlp import READ_BYTES_MAX, parse_error, points


def said(key: str, value: AnyValue) -> KeyValue:
    return KeyValue(key=key, value=value)


def pushed(*metrics: Metric, resource: Resource | None = None) -> bytes:
    scope = ScopeMetrics(metrics=metrics)
    return MetricsData(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])]).SerializeToString()


def test_each_data_point_is_a_row() -> None:
    node = said("node.id", AnyValue(int_value=3))
    gauge = Gauge(data_points=[NumberDataPoint(as_double=1.5, attributes=[node], time_unix_nano=7)])
    total = Sum(
        data_points=[NumberDataPoint(as_int=2), NumberDataPoint()], aggregation_temporality=1, is_monotonic=True
    )
    spread = Histogram(data_points=[HistogramDataPoint(count=4, sum=10.0)], aggregation_temporality=2)
    rack = Resource(attributes=[said("client_rack", AnyValue(string_value="a"))])
    rows = points(
        pushed(
            Metric(name="g", unit="ms", gauge=gauge),
            Metric(name="s", sum=total),
            Metric(name="h", histogram=spread),
            Metric(name="none"),
            resource=rack,
        )
    )
    assert rows[0] == {
        "name": "g",
        "unit": "ms",
        "kind": "gauge",
        "temporality": None,
        "value": 1.5,
        "from_ns": 0,
        "until_ns": 7,
        "attributes": {"client_rack": "a", "node.id": 3},
    }
    assert [(row["name"], row["temporality"], row["value"]) for row in rows[1:]] == [
        ("s", "delta", 2),
        ("s", "delta", None),
        ("h", "cumulative", None),
    ]
    assert (rows[3]["count"], rows[3]["sum"]) == (4, 10.0)


@pytest.mark.parametrize("unknown", [-1, 0, 3])
def test_unknown_temporality_is_null(unknown: int) -> None:
    total = Sum(data_points=[NumberDataPoint(as_int=2)], aggregation_temporality=unknown)  # type: ignore[arg-type]
    (row,) = points(pushed(Metric(name="s", sum=total)))
    assert row["temporality"] is None


def test_attributes_of_every_type_are_decoded() -> None:
    every = [
        said("text", AnyValue(string_value="é")),
        said("truth", AnyValue(bool_value=True)),
        said("bytes", AnyValue(bytes_value=b"\x01")),
        said("list", AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1), AnyValue()]))),
        said("map", AnyValue(kvlist_value=KeyValueList(values=[said("a", AnyValue(double_value=0.5))]))),
    ]
    (row,) = points(pushed(Metric(name="g", gauge=Gauge(data_points=[NumberDataPoint(attributes=every)]))))
    assert row["attributes"] == {"text": "é", "truth": True, "bytes": "01", "list": [1, None], "map": {"a": 0.5}}


def test_non_finite_numbers_are_encoded_as_json() -> None:
    numbers = [NumberDataPoint(as_double=float(one)) for one in ("nan", "inf", "-inf", "1")]
    rows = points(pushed(Metric(name="g", gauge=Gauge(data_points=numbers))))
    assert [row["value"] for row in rows] == ["NaN", "Infinity", "-Infinity", 1.0]


ATTRIBUTE = said("a", AnyValue(kvlist_value=KeyValueList(values=[said("b", AnyValue(double_value=0.5))])))
SOUND = pushed(
    Metric(name="g", gauge=Gauge(data_points=[NumberDataPoint(as_double=1.5, attributes=[ATTRIBUTE])])),
    Metric(name="s", sum=Sum(data_points=[NumberDataPoint(as_int=2)], aggregation_temporality=1)),
    Metric(name="h", histogram=Histogram(data_points=[HistogramDataPoint(count=4, sum=10.0)])),
)


@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.binary(min_size=1, max_size=3)), max_size=6))
def test_corrupt_metrics_are_decoded_or_refused(changes: list[tuple[int, bytes]]) -> None:
    content = bytearray(SOUND)
    for place, change in changes:
        content[place : place + len(change)] = change
    try:
        rows = points(bytes(content))
    except ValueError as error:
        assert str(error).startswith("not OTLP metrics")
    else:
        json.dumps(rows, allow_nan=False)
        assert {row["temporality"] for row in rows} <= {None, "delta", "cumulative"}


def test_excess_points_are_dropped_and_malformed_metrics_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    many = pushed(Metric(name="g", gauge=Gauge(data_points=[NumberDataPoint(as_int=one) for one in range(9)])))
    assert [row["value"] for row in points(many, 3)] == [0, 1, 2]
    assert points(b"") == []
    with pytest.raises(ValueError, match="not OTLP metrics"):
        points(b"OTLP")
    assert parse_error(bytes(READ_BYTES_MAX)) == ""
    assert "save them to a file" in parse_error(bytes(READ_BYTES_MAX + 1))
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.metrics.v1", None)
    assert parse_error(b"") == "to show them: pip install 'anabranch[telemetry]'"
