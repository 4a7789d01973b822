"""The `anabranch` data source: topics of a Kafka-protocol cluster as batch and streaming DataFrames.

Columns and option names are those of Spark's own Kafka source (`source_options`), so a job only changes its `format`.
There is one task per topic partition and offset range, or several on request. Offsets are in Spark's checkpoint, so
every record is read exactly once into a query, also during a resize: a new partition is read from its beginning, a
merged one to its end, and a reused index continues at its end, because it is one log for its cluster, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from anabranch.spark_jobs.positions import Positions
from anabranch.spark_jobs.range_reader import GONE_TIMEOUT_S, LostRecords, RangeReader
from anabranch.spark_jobs.ranges import OffsetRange, admit, losses, ranges, split
from anabranch.spark_jobs.secured import of_librdkafka
from anabranch.spark_jobs.source_options import CLIENT_OPTIONS, EARLIEST, LATEST, Offsets, Options

log = logging.getLogger(__name__)

FORMAT: Final = "anabranch"
COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS: Final = ", headers array<struct<key: string, value: binary>>"

_HEADER_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass
class _Task(InputPartition):
    range: OffsetRange


class AnabranchSource(DataSource):
    """Register with `spark.dataSource.register(AnabranchSource)`, then `.format("anabranch")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of Spark's Kafka source."""
        # Whether it is a stream is unknown here, and a stream may begin at the end.
        return COLUMNS + (HEADERS if Options.of(self.options, streaming=True).headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create a reader for `spark.read`."""
        return _BatchReader(_check(Options.of(self.options)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Create a reader for `spark.readStream`."""
        return _StreamReader(_check(Options.of(self.options, streaming=True)))


def _check(options: Options) -> Options:
    """Return the options, if executors support them too. Raises ValueError, OSError."""
    of_librdkafka(options.secured)
    return options


class _BatchReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        positions = Positions(self._options)
        try:
            start, end = positions.resolve(self._options.start), positions.resolve(self._options.end)
            # A resize in between may have made a partition, also one whose index, and offsets, were used before.
            is_new = any(its.keys() - start.get(topic, {}).keys() for topic, its in end.items())
            earliest = positions.bound(EARLIEST) if is_new else None
        finally:
            positions.close()
        return _tasks(self._options, ranges(start, end, earliest))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, partition)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        self._options = options
        self._positions: Positions | None = None
        self._newest: dict[tuple[str, str], int] = {}
        self._missing_s: dict[tuple[str, str], float] = {}
        self._earliest: Offsets = {}
        self._latest: Offsets | None = None
        self._pinned: Offsets | None = None

    def initialOffset(self) -> Offsets:
        return self._here().resolve(self._options.start)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._pinned = self._here().bound(LATEST)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        here = self._here()
        here.check_identity()
        earliest, latest = here.bound(EARLIEST), here.bound(LATEST)
        lost = losses(start, earliest, self._gone(start, earliest))
        if lost and self._options.fail_on_data_loss:
            raise LostRecords(f"{'; '.join(lost)} (failOnDataLoss=false skips them)")
        for line in lost:
            log.warning("%s", line)
        self._newest.update({(topic, index): at for topic, its in latest.items() for index, at in its.items()})
        self._earliest, self._latest = earliest, latest
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return admit(start, latest if self._pinned is None else self._pinned, rows, earliest)

    def _gone(self, start: Offsets, earliest: Offsets) -> dict[tuple[str, str], int]:
        """Return the partitions missing for so long that they count as removed, with their end offsets."""
        now_s = time.perf_counter()
        missing = {
            (topic, index) for topic, its in start.items() for index in its.keys() - earliest.get(topic, {}).keys()
        }
        self._missing_s = {one: self._missing_s.get(one, now_s) for one in missing}
        believed = [one for one, since_s in self._missing_s.items() if now_s - since_s >= GONE_TIMEOUT_S]
        return {one: self._newest[one] for one in believed if one in self._newest}

    def reportLatestOffset(self) -> Offsets | None:
        return self._latest

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        new = {topic: its.keys() - start.get(topic, {}).keys() for topic, its in end.items()}
        if not all(indexes <= self._earliest.get(topic, {}).keys() for topic, indexes in new.items()):
            self._earliest = self._here().bound(EARLIEST)
        return _tasks(self._options, ranges(start, end, self._earliest))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, partition)

    def stop(self) -> None:
        if self._positions is not None:
            self._positions.close()

    def _here(self) -> Positions:
        if self._positions is None:
            self._positions = Positions(self._options)
        return self._positions

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled state for the executors, which only read."""
        return {"_options": self._options}


def _tasks(options: Options, whole: Sequence[OffsetRange]) -> list[InputPartition]:
    return [_Task(one) for one in split(whole, options.partitions_min, options.records_per_partition_max)]


# ----------------------------------------------------------------------------------------------------- on the executors

_idle: Final[dict[tuple[object, ...], list[RangeReader]]] = {}
"""Connected readers, kept for the next task: a worker runs many tasks, some shorter than a connect."""


def read(options: Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task as Arrow batches."""
    assert isinstance(partition, _Task), "made by _tasks()"
    client = {CLIENT_OPTIONS[name]: value for name, value in options.client.items()}
    alike = (options.servers, *sorted(client.items()), *sorted(options.secured.items()))
    pool = _idle.setdefault(alike, [])
    reader = pool.pop() if pool else RangeReader(options.servers, {**client, **of_librdkafka(options.secured)})
    try:
        for records in reader.read(partition.range, fail_on_data_loss=options.fail_on_data_loss):
            yield to_arrow(records, partition.range, headers=options.headers)
    except BaseException:
        reader.close()
        raise
    pool.append(reader)


def to_arrow(records: Sequence[Message], source: OffsetRange, *, headers: bool) -> pa.RecordBatch:
    """Convert records of one partition to an Arrow batch with the source's columns."""
    count = len(records)
    kinds, times_ms = zip(*[record.timestamp() for record in records], strict=True)
    columns: dict[str, pa.Array] = {
        "key": pa.array([record.key() for record in records], pa.binary()),
        "value": pa.array([record.value() for record in records], pa.binary()),
        "topic": pa.repeat(pa.scalar(source.topic), count),
        "partition": pa.repeat(pa.scalar(source.partition, pa.int32()), count),
        "offset": pa.array([record.offset() for record in records], pa.int64()),
        "timestamp": pc.multiply(pa.array(times_ms, pa.int64()), 1000).cast(pa.timestamp("us", tz="UTC")),
        # librdkafka counts from 1, with 0 for none; Kafka and Spark from 0, with -1 for none.
        "timestampType": pc.subtract(pa.array(kinds, pa.int32()), pa.scalar(1, pa.int32())),
    }
    if headers:
        rows: list[Any] = [record.headers() or () for record in records]
        columns["headers"] = _header_lists(rows)
    return pa.RecordBatch.from_pydict(columns)


def _header_lists(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.Array:
    """Build the headers of many records as one flat column: a dictionary per header would cost five times as much.

    Without headers the value is null, as in Spark's Kafka source.
    """
    flat = [header for row in headers for header in row]
    starts = np.zeros(len(headers) + 1, np.int32)
    np.cumsum([len(row) for row in headers], out=starts[1:])
    names = pa.array([name for name, _ in flat], pa.string())
    values = pa.array([value for _, value in flat], pa.binary())
    pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER_TYPE.value_type))
    none = np.append(np.diff(starts) == 0, False)  # the last one is only where the last list ends
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32(), mask=none), pairs)
