"""The `anabranch` data source: how batches are cut, and what Spark reads through it from a real cluster."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.source import AnabranchSource, Offsets, admit, ranges
from tests.spark_jobs.live import LiveCluster

Backlogs = st.dictionaries(
    st.sampled_from(["t", "u"]), st.dictionaries(st.sampled_from("0123"), st.integers(0, 50), max_size=4), max_size=2
)


def rows_between(start: Offsets, end: Offsets) -> int:
    return sum(one.end - one.start for one in ranges(start, end))


@given(start=Backlogs, backlog=Backlogs, limit=st.none() | st.integers(1, 60))
def test_a_batch_takes_what_it_may_and_never_goes_back(start: Offsets, backlog: Offsets, limit: int | None) -> None:
    latest = {
        topic: {index: start.get(topic, {}).get(index, 0) + count for index, count in partitions.items()}
        for topic, partitions in backlog.items()
    }
    waiting = sum(count for partitions in backlog.values() for count in partitions.values())
    end = admit(start, latest, limit)
    assert rows_between(start, end) == (waiting if limit is None else min(limit, waiting))
    for topic, partitions in start.items():
        for index, offset in partitions.items():
            assert offset <= end[topic][index]
    for one in ranges(start, end):
        assert one.end <= latest[one.topic][str(one.partition)]


def test_a_limit_is_shared_by_need() -> None:
    end = admit({"t": {"0": 0, "1": 0}}, {"t": {"0": 900, "1": 100}}, 100)
    assert end == {"t": {"0": 90, "1": 10}}


def test_a_log_that_got_shorter_is_no_reason_to_go_back() -> None:
    assert admit({"t": {"0": 10}}, {"t": {"0": 4}}, None) == {"t": {"0": 10}}


def test_a_partition_that_is_gone_keeps_its_offset() -> None:
    assert admit({"t": {"0": 5, "7": 3}}, {"t": {"0": 6}}, 10) == {"t": {"0": 6, "7": 3}}


def test_a_partition_that_appears_is_read_from_its_beginning() -> None:
    assert [(one.partition, one.start, one.end) for one in ranges({"t": {"0": 5}}, {"t": {"0": 5, "1": 4}})] == [
        (1, 0, 4)
    ]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"subscribe": "t"}, "bootstrap.servers"),
        ({"bootstrap.servers": "h:1", "subscribe": " , "}, "subscribe"),
        ({"bootstrap.servers": "h:1", "subscribe": "t", "startingOffsets": "17"}, "earliest or latest"),
        ({"bootstrap.servers": "h:1", "subscribe": "t", "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        AnabranchSource(options).schema()


def numbered(start: int, end: int, partitions: int = 3) -> list[tuple[int, bytes, bytes]]:
    return [(number % partitions, b"k%d" % number, b"v%d" % number) for number in range(start, end)]


@pytest.mark.spark
def test_batch_reads_whole_topics_with_the_columns_of_sparks_kafka_source(
    spark: SparkSession, live: LiveCluster
) -> None:
    first, second = live.create("batch-1", 3), live.create("batch-2", 1)
    live.produce(first, numbered(0, 50), headers=[("h", b"x"), ("h", None)], compression="lz4")
    live.produce(second, [(0, b"only", b"one")])
    frame = (
        spark.read.format("anabranch")
        .option("kafka.bootstrap.servers", live.servers)
        .option("subscribe", f"{first},{second}")
        .option("includeHeaders", "true")
        .load()
    )
    assert frame.columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    rows = frame.collect()
    assert {(row.partition, bytes(row.key), bytes(row.value)) for row in rows if row.topic == first} == set(
        numbered(0, 50)
    )
    assert sorted(row.offset for row in rows if row.topic == first and row.partition == 0) == list(range(17))
    headers = {tuple((one.key, one.value and bytes(one.value)) for one in row.headers) for row in rows}
    assert headers == {(("h", b"x"), ("h", None)), ()}
    [only] = [row for row in rows if row.topic == second]
    assert abs(only.timestamp - dt.datetime.now()) < dt.timedelta(minutes=5)


@pytest.mark.spark
def test_a_stream_takes_limited_batches_finds_new_partitions_and_goes_on_from_its_checkpoint(
    spark: SparkSession, live: LiveCluster, tmp_path: Path
) -> None:
    topic = live.create("stream", 2)
    live.produce(topic, numbered(0, 50, 2))
    batches: list[list[bytes]] = []

    def take(frame: DataFrame, _: int) -> None:
        batches.append([bytes(row.key) for row in frame.collect()])

    def run(between: Callable[[], None]) -> list[int]:
        batches.clear()
        query = (
            spark.readStream.format("anabranch")
            .option("bootstrap.servers", live.servers)
            .option("subscribe", topic)
            .option("maxOffsetsPerTrigger", 20)
            .load()
            .writeStream.option("checkpointLocation", str(tmp_path))
            .trigger(processingTime="0 seconds")
            .foreachBatch(take)
            .start()
        )
        try:
            query.processAllAvailable()
            between()
            query.processAllAvailable()
        finally:
            query.stop()
        return [len(batch) for batch in batches if batch]

    def more() -> None:
        live.grow(topic, 3)
        live.produce(topic, [(2, b"new", b"partition")])

    assert run(more) == [20, 20, 10, 1]
    assert sorted(itertools.chain(*batches)) == sorted([b"new", *(key for _, key, _ in numbered(0, 50))])
    live.produce(topic, [(1, b"later", b"")])
    assert run(lambda: None) == [1]
    assert batches[-1] == [b"later"]
