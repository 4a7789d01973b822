"""The `anabranch` data source: topics of a Kafka-protocol cluster as batch and streaming DataFrames.

Columns and option names are those of Spark's own Kafka source, so that a job can change its `format` and nothing else:
`subscribe` (topics, with commas between), `bootstrap.servers` (with or without the `kafka.` prefix), `startingOffsets`
and `endingOffsets` (earliest, latest), `maxOffsetsPerTrigger`, `includeHeaders`. There is one input partition per topic
partition and offset range; offsets live in Spark's checkpoint, so every record is read exactly once into a query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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


Offsets = dict[str, dict[str, int]]
"""Per topic and partition, as JSON has it: what Spark's Kafka source writes into checkpoints, too."""


@dataclass(frozen=True)
class _Options:
    """What the source was asked for; ValueError says what is wrong."""

    servers: str
    topics: tuple[str, ...]
    start: int
    end: int
    headers: bool
    rows_per_trigger: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _Options:
        given = {name.lower(): value for name, value in options.items()}
        servers = given.get("bootstrap.servers") or given.get("kafka.bootstrap.servers")
        topics = tuple(topic.strip() for topic in given.get("subscribe", "").split(",") if topic.strip())
        if not servers or not topics:
            raise ValueError(
                'the anabranch source needs .option("bootstrap.servers", ...) and .option("subscribe", TOPIC)'
            )
        limit = given.get("maxoffsetspertrigger")
        if limit is not None and (not limit.isdigit() or int(limit) == 0):
            raise ValueError(f"maxOffsetsPerTrigger is a number of records, not {limit!r}")
        return cls(
            servers=servers,
            topics=topics,
            start=_position(given.get("startingoffsets", "earliest")),
            end=_position(given.get("endingoffsets", "latest")),
            headers=given.get("includeheaders", "false").lower() == "true",
            rows_per_trigger=int(limit) if limit else None,
        )


@dataclass
class _Range(InputPartition):
    """Offsets [start, end) of one partition."""

    topic: str
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
            return ranges(
                _offsets(reader, self._options, self._options.start), _offsets(reader, self._options, self._options.end)
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, options: _Options) -> None:
        self._options = options
        self._reader: TopicReader | None = None

    def initialOffset(self) -> Offsets:
        return self._at(self._options.start)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.rows_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        return admit(start, self._at(LATEST), limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        return ranges(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _at(self, at: int) -> Offsets:
        if self._reader is None:
            self._reader = TopicReader(self._options.servers)
        return _offsets(self._reader, self._options, at)

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_reader": None}


def admit(start: Offsets, latest: Offsets, limit: int | None) -> Offsets:
    """Where the next batch ends: everything, or `limit` records, which partitions share as they have records waiting.

    A partition that is gone keeps the offset it had: Spark compares offsets only, and knows no smaller set of them.
    """
    end = {topic: dict(partitions) for topic, partitions in start.items()}
    waiting = {
        (topic, index): max(0, offset - start.get(topic, {}).get(index, 0))
        for topic, partitions in latest.items()
        for index, offset in partitions.items()
    }
    rows = sum(waiting.values())
    room = rows if limit is None else min(limit, rows)
    for (topic, index), count in waiting.items():
        share = room * count // rows if rows else 0
        end.setdefault(topic, {})[index] = start.get(topic, {}).get(index, 0) + share
        room, rows = room - share, rows - count
    return end


def ranges(start: Offsets, end: Offsets) -> list[_Range]:
    """What lies between two offsets. A partition that appeared after the start is read from its beginning."""
    found = [
        _Range(topic, int(index), start.get(topic, {}).get(index, 0), offset)
        for topic, partitions in end.items()
        for index, offset in sorted(partitions.items())
    ]
    return [one for one in found if one.start < one.end]


def _offsets(reader: TopicReader, options: _Options, at: int) -> Offsets:
    return {
        topic: {str(index): offset for index, offset in reader.offsets(topic, at).items()} for topic in options.topics
    }


def _read(options: _Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, _Range), "made by ranges()"
    rows: list[Record] = []
    with TopicReader(options.servers) as reader:
        for batch in reader.read(partition.topic, partition.partition, partition.start, partition.end):
            rows.extend(batch)
            if len(rows) >= ROWS_PER_BATCH:
                yield _arrow(options, partition, rows)
                rows = []
    if rows:
        yield _arrow(options, partition, rows)


def _arrow(options: _Options, source: _Range, rows: Sequence[Record]) -> pa.RecordBatch:
    count = len(rows)
    offsets, timestamps, keys, values, headers = zip(*rows, strict=True)
    columns: dict[str, pa.Array] = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.repeat(pa.scalar(source.topic), count),
        "partition": pa.repeat(pa.scalar(source.partition, pa.int32()), count),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pc.multiply(pa.array(timestamps, pa.int64()), 1000).cast(pa.timestamp("us", tz="UTC")),
        "timestampType": pa.repeat(pa.scalar(CREATE_TIME, pa.int32()), count),
    }
    if options.headers:
        columns["headers"] = _header_lists(headers)
    return pa.RecordBatch.from_pydict(columns)


def _header_lists(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.Array:
    """The headers of many records as one column, built flat: a dictionary per header would cost five times as much."""
    flat = [header for row in headers for header in row]
    starts = np.zeros(len(headers) + 1, np.int32)
    np.cumsum([len(row) for row in headers], out=starts[1:])
    names = pa.array([name for name, _ in flat], pa.string())
    values = pa.array([value for _, value in flat], pa.binary())
    pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER_TYPE.value_type))
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pairs)


def _position(text: str) -> int:
    if text not in _POSITIONS:
        raise ValueError(f"offsets are earliest or latest, not {text!r}")
    return _POSITIONS[text]
