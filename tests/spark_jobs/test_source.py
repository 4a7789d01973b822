"""The `anabranch` data source in Spark on a real cluster."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadMaxRows

from anabranch.spark_jobs import source
from anabranch.spark_jobs.positions import Positions
from anabranch.spark_jobs.range_reader import LostRecords
from anabranch.spark_jobs.ranges import OffsetRange
from anabranch.spark_jobs.service import STARTS_MAX, TOO_SLOW
from anabranch.spark_jobs.source import AnabranchSource, _BatchReader, _StreamReader, _Task
from anabranch.spark_jobs.source_options import Offsets, Options
from tests.spark_jobs.happenings import expire, resize, wait_for
from tests.spark_jobs.live import LiveCluster

CREATE_TIME = 0


def numbered(start: int, end: int, partitions: int = 3) -> list[tuple[int, bytes, bytes]]:
    return [(number % partitions, b"k%d" % number, b"v%d" % number) for number in range(start, end)]


def test_wrong_options_are_refused_when_source_is_created() -> None:
    with pytest.raises(ValueError, match="exactly one of subscribe"):
        AnabranchSource({"kafka.bootstrap.servers": "h:1"}).schema()
    streams_only = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "startingOffsets": "latest"}
    assert "headers" not in str(AnabranchSource(streams_only).schema())
    assert "headers" in str(AnabranchSource({**streams_only, "includeHeaders": "true"}).schema())


def test_partition_that_appears_while_a_batch_is_planned_is_read_from_its_log_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its index was used before, so its offsets go on; that those of its earlier life are gone is no loss."""

    class Resized(Positions):
        answers = iter(({"t": {"0": 0}}, {"t": {"0": 4, "1": 520}}, {"t": {"0": 0, "1": 500}}))

        def bound(self, at: int) -> Offsets:
            return next(self.answers)

    monkeypatch.setattr(source, "Positions", Resized)
    options = Options.of({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    planned = [one.range for one in _BatchReader(options).partitions() if isinstance(one, _Task)]
    assert planned == [OffsetRange("t", 0, 0, 4), OffsetRange("t", 1, 500, 520)]


def test_records_expired_before_read_are_an_error_or_skipped(live: LiveCluster) -> None:
    topic = live.create("expired", 1)
    live.produce(topic, [(0, b"k", b"v")] * 9)
    given = {"kafka.bootstrap.servers": live.servers, "subscribe": topic, "startingOffsets": "earliest"}
    strict = _StreamReader(Options.of(given, streaming=True))
    lenient = _StreamReader(Options.of({**given, "failOnDataLoss": "false"}, streaming=True))
    try:
        start = strict.initialOffset()
        expire(live, topic, 0, 4)
        with pytest.raises(LostRecords, match="expired-0 begins at offset 4 now; 0 to 3 were not read"):
            strict.latestOffset(start, strict.getDefaultReadLimit())
        assert lenient.latestOffset(start, lenient.getDefaultReadLimit()) == {topic: {"0": 9}}
        assert lenient.reportLatestOffset() == {topic: {"0": 9}}
    finally:
        strict.stop()
        lenient.stop()


def test_records_of_removed_partition_are_an_error_once_removal_is_certain(
    live: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = live.create("went", 2)
    live.produce(topic, [(1, b"k", b"v")] * 3)
    given = {"kafka.bootstrap.servers": live.servers, "subscribe": topic, "startingOffsets": "earliest"}
    reader = _StreamReader(Options.of(given, streaming=True))
    try:
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadMaxRows(1)) == {topic: {"0": 0, "1": 1}}
        resize(live, topic, 1)
        expire(live, topic, 1, 3)
        wait_for(live, topic, lambda found: list(found.topics[topic].partitions) == [0])
        read_to = {topic: {"0": 0, "1": 1}}
        assert reader.latestOffset(read_to, ReadMaxRows(1)) == read_to, "a broker may know less than there is"
        monkeypatch.setattr(source, "GONE_TIMEOUT_S", 0.0)
        assert reader.latestOffset({topic: {"0": 0, "1": 3}}, ReadMaxRows(1)) == {topic: {"0": 0, "1": 3}}
        with pytest.raises(LostRecords, match="went-1 was deleted; its offsets 1 to 2 were not read"):
            reader.latestOffset(read_to, ReadMaxRows(1))
    finally:
        reader.stop()


def test_available_now_reads_only_existing_records(live: LiveCluster) -> None:
    topic = live.create("now", 1)
    live.produce(topic, [(0, b"k", b"v")] * 3)
    given = {"kafka.bootstrap.servers": live.servers, "subscribe": topic, "startingOffsets": "earliest"}
    reader = _StreamReader(Options.of(given, streaming=True))
    try:
        reader.prepareForTriggerAvailableNow()
        live.produce(topic, [(0, b"k", b"v")] * 3)
        assert reader.latestOffset({topic: {"0": 0}}, reader.getDefaultReadLimit()) == {topic: {"0": 3}}
    finally:
        reader.stop()


@pytest.mark.spark
def test_batch_reads_whole_topics_with_columns_of_spark_kafka_source(spark: SparkSession, live: LiveCluster) -> None:
    first, second = live.create("batch-1", 3), live.create("batch-2", 1)
    live.produce(first, numbered(0, 50), headers=[("h", b"x"), ("h", None)], compression="lz4")
    live.produce(second, [(0, b"only", b"one")])
    frame = (
        spark.read.format("anabranch")
        .option("kafka.bootstrap.servers", live.servers)
        .option("subscribe", f"{first},{second}")
        .option("includeHeaders", "true")
        .option("minPartitions", 8)
        .load()
    )
    assert frame.rdd.getNumPartitions() >= 8
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
    headers = {
        tuple((one.key, one.value and bytes(one.value)) for one in row.headers)
        for row in rows
        if row.headers is not None
    }
    assert headers == {(("h", b"x"), ("h", None))}
    [only] = [row for row in rows if row.topic == second]
    assert only.headers is None, "as Spark's Kafka source says it"
    assert abs(only.timestamp - dt.datetime.now()) < dt.timedelta(minutes=5)
    assert {row.timestampType for row in rows} == {CREATE_TIME}


class Query:
    """A streaming query that can be stopped and continued; `take` runs it until it has everything."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, directory: Path, **options: str) -> None:
        self._spark, self._servers, self._topic, self._directory = spark, servers, topic, directory
        self._options = {"maxOffsetsPerTrigger": "20", **options}
        self._batches: dict[int, list[bytes]] = {}

    @property
    def batches(self) -> list[list[bytes]]:
        """The keys of each batch; one that is processed again counts once."""
        return list(self._batches.values())

    def take(self, *happenings: Callable[[], None]) -> list[bytes]:
        """The new keys, sorted; the query continues between these events."""
        self._batches = {}
        query = self._start()
        try:
            query = self._process(query)
            for happening in happenings:
                happening()
                query = self._process(query)
        finally:
            query.stop()
        return sorted(itertools.chain(*self.batches))

    def _process(self, query: StreamingQuery) -> StreamingQuery:
        """Process all that is available; go on from the checkpoint if Spark ends the query on a busy machine."""
        for _ in range(STARTS_MAX):
            try:
                query.processAllAvailable()
                break
            except StreamingQueryException as error:
                if TOO_SLOW not in str(error):
                    raise
                query = self._start()
        return query

    def _start(self) -> StreamingQuery:
        return (
            self._spark.readStream.format("anabranch")
            .option("bootstrap.servers", self._servers)
            .option("subscribe", self._topic)
            .option("startingOffsets", "earliest")
            .options(**self._options)
            .load()
            .writeStream.option("checkpointLocation", str(self._directory))
            .trigger(processingTime="0 seconds")
            .foreachBatch(self._add)
            .start()
        )

    def _add(self, frame: DataFrame, batch: int) -> None:
        keys = [bytes(row.key) for row in frame.collect()]
        if keys:
            self._batches[batch] = keys


@pytest.mark.spark
def test_stream_reads_limited_batches_and_new_partitions_and_resumes_from_checkpoint(
    spark: SparkSession, live: LiveCluster, tmp_path: Path
) -> None:
    topic = live.create("stream", 2)
    live.produce(topic, numbered(0, 50, 2))
    query = Query(spark, live.servers, topic, tmp_path)

    def more() -> None:
        live.grow(topic, 3)
        live.produce(topic, [(2, b"new", b"partition")])

    assert query.take(more) == sorted([b"new", *(key for _, key, _ in numbered(0, 50))])
    assert [len(batch) for batch in query.batches] == [20, 20, 10, 1]
    live.produce(topic, [(1, b"later", b"")])
    assert query.take() == [b"later"]


@pytest.mark.spark
def test_records_are_read_once_while_partitions_are_added_removed_and_recreated(
    spark: SparkSession, live: LiveCluster, tmp_path: Path
) -> None:
    topic = live.create("come-and-go", 2)
    live.produce(topic, [(0, b"a0", b""), (1, b"a1", b""), (1, b"b1", b"")])
    query = Query(spark, live.servers, topic, tmp_path)

    def merge() -> None:
        resize(live, topic, 1)
        live.produce(topic, [(0, b"merged", b"")])

    def remove() -> None:
        expire(live, topic, 1, 2)
        wait_for(live, topic, lambda found: list(found.topics[topic].partitions) == [0])
        live.produce(topic, [(0, b"alone", b"")])

    assert query.take(merge, remove) == [b"a0", b"a1", b"alone", b"b1", b"merged"]
    resize(live, topic, 2)
    assert live.produce(topic, [(1, b"back", b"")]) == [2], "the index goes on where it ended"
    assert query.take() == [b"back"]
