"""The way of a key, out of the runs of an audit topic. That Spark collects it is seen in test_work."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa

from protocol import audit as wire
from spark_jobs import paths
from spark_jobs.verdict import Event
from tests.spark_jobs.live import DELIVERY

BATCH_COLUMNS = ("key", "value", "partition", "offset")


def batch(*values: bytes | None, key: bytes | None = b"\x00") -> pa.RecordBatch:
    rows = [{"key": key, "value": value, "partition": 1, "offset": n} for n, value in enumerate(values)]
    kinds = (pa.binary(), pa.binary(), pa.int32(), pa.int64())
    return pa.RecordBatch.from_pylist(rows, pa.schema(list(zip(BATCH_COLUMNS, kinds, strict=True))))


def test_only_deliveries_of_the_keys_are_taken_out_of_runs() -> None:
    ones = [replace(DELIVERY, key=key, sequence=n, offset=10 + n) for n, key in enumerate((b"a", b"b", b"a", None))]
    wanted = frozenset({(DELIVERY.group, DELIVERY.topic, "a"), ("others", DELIVERY.topic, "b")})
    (found,) = paths._deliveries(wanted, [batch(wire.encode_events(ones), None)])
    rows = found.to_pylist()
    assert [(row["partition"], row["offset"], row["place"]) for row in rows] == [(1, 0, 0), (1, 0, 2)]
    assert [json.loads(row["detail"])["offset"] for row in rows] == [10, 12]
    assert all(json.loads(row["name"])[2] == "a" for row in rows)
    (none,) = paths._deliveries(wanted, [batch(None)])
    assert none.num_rows == 0


def place(number: int) -> dict[str, object]:
    return Event("g", "t", 7, b"k", number, 0, number, 0, number, 0, "m", 1, 1).place()


def test_a_long_way_is_cut_around_the_delivery() -> None:
    way = [place(number) for number in range(40)]
    cut = paths._cut(way, {"delivered": place(20), "before": place(3)})
    assert [one["sequence"] for one in cut] == list(range(20 - paths.AROUND, 21 + paths.AROUND))
    assert paths._cut(way, {"before": place(0)}) == way[: paths.AROUND + 1]
    assert paths._cut(way, {})[-1] == way[-1], "what is lost has no delivery: the end of the way is told"
    assert paths._cut([], {}) == []
