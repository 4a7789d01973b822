"""The events of a key, from the runs of an audit topic."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.protocol import audit as wire
from anabranch.spark_jobs import paths
from anabranch.spark_jobs.verdict import Event
from tests.spark_jobs.live import DELIVERY

BATCH_COLUMNS = ("key", "value", "partition", "offset")


def batch(*values: bytes | None, key: bytes | None = b"\x00") -> pa.RecordBatch:
    rows = [{"key": key, "value": value, "partition": 1, "offset": n} for n, value in enumerate(values)]
    kinds = (pa.binary(), pa.binary(), pa.int32(), pa.int64())
    return pa.RecordBatch.from_pylist(rows, pa.schema(list(zip(BATCH_COLUMNS, kinds, strict=True))))


def test_only_deliveries_of_given_keys_are_taken_from_runs() -> None:
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


def test_long_path_is_cut_around_the_delivery() -> None:
    way = [place(number) for number in range(40)]
    cut = paths._cut(way, {"delivered": place(20), "before": place(3)})
    assert [one["sequence"] for one in cut] == list(range(20 - paths.AROUND, 21 + paths.AROUND))
    assert paths._cut(way, {"before": place(0)}) == way[: paths.AROUND + 1]
    assert paths._cut(way, {"next": place(30), "before": place(20)}) == way[30 - paths.AROUND : 31 + paths.AROUND]
    assert paths._cut(way, {})[-1] == way[-1], "what is lost has no delivery: the end of the way is told"
    assert paths._cut([], {}) == []


@pytest.mark.spark
def test_each_violation_has_its_own_path(spark: SparkSession) -> None:
    """Two groups read the same key, and one has two violations far apart."""
    ours = [replace(DELIVERY, key=b"k", sequence=n, offset=n, time_ms=n) for n in range(40)]
    theirs = [replace(one, group="others", member="theirs", incarnation=9) for one in ours]
    values = [(b"\x00", wire.encode_events(its), 1, n) for n, its in enumerate((ours, theirs))]
    records = spark.createDataFrame(values, "key binary, value binary, partition int, offset bigint")

    def story(of: list[wire.Delivery], number: int) -> dict[str, object]:
        one = of[number]
        by = (one.member, one.incarnation, one.group_generation)
        told = Event(
            one.group, one.topic, one.producer, b"k", number, one.partition, number, one.generation, number, 0, *by
        )
        return {"group": one.group, "topic": one.topic, "key": "k", "delivered": told.place()}

    keyless = {**story(ours, 3), "key": None}
    ways = paths.around(records, [story(ours, 3), story(theirs, 3), keyless, story(ours, 30)])
    around = paths.AROUND
    assert [[one["sequence"] for one in way] for way in ways] == [
        [*range(4 + around)],
        [*range(4 + around)],
        [],
        [*range(30 - around, 31 + around)],
    ]
    assert [{one["member"] for one in way} for way in ways] == [{DELIVERY.member}, {"theirs"}, set(), {DELIVERY.member}]
    assert paths.around(records, [keyless]) == []
