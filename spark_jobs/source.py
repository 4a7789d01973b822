"""The `anabranch` data source: topics of a Kafka-protocol cluster as batch and streaming DataFrames.

Columns and option names are those of Spark's own Kafka source, so that a job can change its `format` and nothing else:
`subscribe` (one topic), `bootstrap.servers` (with or without the `kafka.` prefix), `startingOffsets` and
`endingOffsets` (earliest, latest), `maxOffsetsPerTrigger`, `includeHeaders`. One input partition per topic partition and offset range;
offsets live in Spark's checkpoint, so every record is read exactly once into a query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from protocol.records.batch import Record
from spark_jobs.reader import EARLIEST, LATEST, TopicReader

FORMAT: Final = "anabranch"
COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS: Final = ", headers array<struct<key: string, value: binary>>"
ROWS_PER_BATCH: Final = 20_000
CREATE_TIME: Final = 0

_POSITIONS: Final = {"earliest": EARLIEST, "latest": LATEST}
_HEADER_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class _Options:
    """What the source was asked for; ValueError says what is wrong."""

    servers: str
    topic: str
    start: int
    end: int
    headers: bool
    rows_per_trigger: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _Options:
        given = {name.lower(): value for name, value in options.items()}
        servers = given.get("bootstrap.servers") or given.get("kafka.bootstrap.servers")
        topic = given.get("subscribe")
        if not servers or not topic:
            raise ValueError(
                'the anabranch source needs .option("bootstrap.servers", ...) and .option("subscribe", TOPIC)'
            )
        limit = given.get("maxoffsetspertrigger")
        return cls(
            servers=servers,
            topic=topic,
            start=_position(given.get("startingoffsets", "earliest")),
            end=_position(given.get("endingoffsets", "latest")),
            headers=given.get("includeheaders", "false").lower() == "true",
            rows_per_trigger=int(limit) if limit else None,
        )


@dataclass
class _Range(InputPartition):
    """Offsets [start, end) of one partition."""

    partition: int
    start: int
    end: int


class AnabranchSource(DataSource):
    """Register with `spark.dataSource.register(AnabranchSource)`, then `.format("anabranch")`."""

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
        return FORMAT

    def schema(self) -> str:
        """The columns of Spark's Kafka source."""
        return COLUMNS + (HEADERS if _Options.of(self.options).headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        return _BatchReader(_Options.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        return _StreamReader(_Options.of(self.options))


class _BatchReader(DataSourceReader):
    def __init__(self, options: _Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        with TopicReader(self._options.servers) as reader:
            start = reader.offsets(self._options.topic, self._options.start)
            end = reader.offsets(self._options.topic, self._options.end)
        return [_Range(index, start[index], end[index]) for index in sorted(start) if start[index] < end[index]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, options: _Options) -> None:
        self._options = options
        self._reader: TopicReader | None = None

    def initialOffset(self) -> dict[str, int]:
        return self._offsets(self._options.start)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.rows_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        latest = self._offsets(LATEST)
        if not isinstance(limit, ReadMaxRows):
            return latest
        each = max(1, limit.max_rows // max(1, len(latest)))
        return {index: min(end, start.get(index, 0) + each) for index, end in latest.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        # A partition that appeared after the start is read from its beginning.
        ranges = [_Range(int(index), start.get(index, 0), offset) for index, offset in sorted(end.items())]
        return [one for one in ranges if one.start < one.end]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _offsets(self, at: int) -> dict[str, int]:
        if self._reader is None:
            self._reader = TopicReader(self._options.servers)
        return {str(index): offset for index, offset in self._reader.offsets(self._options.topic, at).items()}

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_reader": None}


def _read(options: _Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, _Range), "made by partitions()"
    rows: list[Record] = []
    with TopicReader(options.servers) as reader:
        for batch in reader.read(options.topic, partition.partition, partition.start, partition.end):
            rows.extend(batch)
            if len(rows) >= ROWS_PER_BATCH:
                yield _arrow(options, partition.partition, rows)
                rows = []
    if rows:
        yield _arrow(options, partition.partition, rows)


def _arrow(options: _Options, index: int, rows: Sequence[Record]) -> pa.RecordBatch:
    count = len(rows)
    offsets, timestamps, keys, values, headers = zip(*rows, strict=True)
    columns: dict[str, pa.Array] = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array([options.topic] * count, pa.string()),
        "partition": pa.array([index] * count, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([1000 * one for one in timestamps], pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([CREATE_TIME] * count, pa.int32()),
    }
    if options.headers:
        listed = [[{"key": name, "value": value} for name, value in row] for row in headers]
        columns["headers"] = pa.array(listed, _HEADER_TYPE)
    return pa.RecordBatch.from_pydict(columns)


def _position(text: str) -> int:
    if text not in _POSITIONS:
        raise ValueError(f"offsets are earliest or latest, not {text!r}")
    return _POSITIONS[text]
