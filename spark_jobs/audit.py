"""The audit as one Structured Streaming query: audit topic in, violations and a running summary out.

    anabranch source -> bucket by key -> state per bucket (transformWithState) -> rows -> foreachBatch

Every key falls into one of a few buckets; a bucket's state holds all its keys (`checks.Bucket`) and lives in Spark's
checkpointed state store, so it is exactly as old as the offsets. A batch emits its violations, and the *cumulative* counts
of every bucket it touched: writing either twice, after a restart, changes nothing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, ValueState

from protocol import audit as wire
from spark_jobs.checks import COUNTERS, Bucket, Event, Violation, total
from spark_jobs.source import FORMAT, AnabranchSource

BUCKETS: Final = 8
TRIGGER: Final = "1 second"
SUMMARY: Final = "summary"
OUTPUT_SCHEMA: Final = "kind string, bucket int, detail string"
STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_FIXED: Final = np.dtype(
    [
        ("version", "u1"),
        ("generation", ">i4"),
        ("partition", ">i4"),
        ("offset", ">i8"),
        ("producer", ">u8"),
        ("sequence", ">u8"),
        ("fingerprint", ">u8"),
        ("time_ms", ">i8"),
        ("incarnation", ">u8"),
    ]
)
assert _FIXED.itemsize == wire.FIXED.size, "the dtype is the wire format's fixed part"


def open_session(directory: Path, *, cores: int = 2) -> SparkSession:
    """A local session that starts quickly, stays quiet and listens on loopback only."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    directory.mkdir(parents=True, exist_ok=True)
    logging = directory / "log4j2.properties"
    logging.write_text(LOG4J)
    java = f"-Dlog4j2.configurationFile={logging.absolute().as_uri()} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    session: SparkSession = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("anabranch-audit")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "768m")
        .config("spark.driver.extraJavaOptions", java)
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50000")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(AnabranchSource)
    return session


@dataclass(frozen=True, slots=True)
class Target:
    """What to audit, and where its output goes."""

    servers: str
    topic: str
    """The audit topic."""
    directory: Path

    @property
    def checkpoint(self) -> Path:
        """Spark's own: offsets and state."""
        return self.directory / "checkpoint"

    @property
    def summary(self) -> Path:
        """The latest cumulative counts of every bucket."""
        return self.directory / "summary.json"

    @property
    def violations(self) -> Path:
        """One file of JSON lines per batch that had any."""
        return self.directory / "violations"


class BucketAuditor(StatefulProcessor):
    """Checks the deliveries of one bucket, batch by batch."""

    _state: ValueState

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark."""
        self._state = handle.getValueState("bucket", "packed binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Called by Spark with the rows of one bucket in one batch."""
        frame = pd.concat(list(rows), ignore_index=True)
        # A key's events share one audit partition; their offsets there are the order of delivery.
        frame = frame.sort_values(["partition", "offset"], kind="stable")
        packed = self._state.get()
        bucket = Bucket.unpack(bytes(packed[0]) if packed is not None else None)
        violations = bucket.check(_events(frame["key"].tolist(), frame["value"].tolist()))
        self._state.update((bucket.pack(),))
        number = int(key[0])
        counts = {**bucket.counts, "by_generation": bucket.by_generation}
        details = [(SUMMARY, number, json.dumps(counts))]
        details += [(one.kind, number, json.dumps(describe(one))) for one in violations]
        yield pd.DataFrame(details, columns=["kind", "bucket", "detail"])

    def close(self) -> None:
        """Called by Spark."""


def _events(keys: list[bytes | None], values: list[bytes]) -> Iterator[Event]:
    """Audit records taken apart, the fixed parts of all of them at once."""
    size = wire.FIXED.size
    fixed = np.frombuffer(b"".join(value[:size] for value in values), dtype=_FIXED)
    columns = [fixed[name].tolist() for name in _FIXED.names or ()]
    names: dict[bytes, tuple[str, str, str]] = {}
    for key, value, (_, generation, partition, offset, producer, sequence, _, time_ms, incarnation) in zip(
        keys, values, zip(*columns, strict=True), strict=True
    ):
        tail = bytes(value[size:])
        known = names.get(tail)
        if known is None:
            delivery = wire.decode_delivery(bytes(value))
            known = names[tail] = (delivery.group, delivery.member, delivery.topic)
        group, member, topic = known
        yield Event(
            group,
            producer,
            bytes(key or b""),
            sequence,
            topic,
            partition,
            offset,
            generation,
            member,
            incarnation,
            time_ms,
        )


def describe(violation: Violation) -> dict[str, Any]:
    """The whole story of a violation, for people and for tools."""
    event, before = violation.event, violation.before
    story: dict[str, Any] = {
        "kind": violation.kind,
        "group": event.group,
        "key": event.key.decode(errors="backslashreplace"),
    }
    for name, one in (("delivered", event), ("after", before)):
        story[name] = {
            "topic": one.topic,
            "partition": one.partition,
            "offset": one.offset,
            "generation": one.generation,
            "sequence": one.sequence,
            "producer": one.producer,
            "member": one.member,
            "time_ms": one.time_ms,
        }
    return story


def start(session: SparkSession, target: Target, on_progress: Callable[[dict[str, Any]], None]) -> StreamingQuery:
    """Start, or continue from its checkpoint, the audit of one topic. `on_progress` gets the summary of each batch."""
    target.violations.mkdir(parents=True, exist_ok=True)
    deliveries = (
        session.readStream.format(FORMAT)
        .option("bootstrap.servers", target.servers)
        .option("subscribe", target.topic)
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value", "partition", "offset")
        .withColumn("bucket", F.pmod(F.hash("key"), F.lit(BUCKETS)))
    )
    checked = deliveries.groupBy("bucket").transformWithStateInPandas(
        statefulProcessor=BucketAuditor(), outputStructType=OUTPUT_SCHEMA, outputMode="Append", timeMode="None"
    )

    def write(batch: DataFrame, number: int) -> None:
        rows = batch.collect()
        found = [row["detail"] for row in rows if row["kind"] != SUMMARY]
        if found:
            (target.violations / f"batch-{number:06}.jsonl").write_text("\n".join(found) + "\n")
        buckets = _read_summary(target)
        buckets.update({str(row["bucket"]): json.loads(row["detail"]) for row in rows if row["kind"] == SUMMARY})
        _write_summary(target, buckets)
        on_progress({"batch": number, **summary(target)})

    query: StreamingQuery = (
        checked.writeStream.outputMode("append")
        .option("checkpointLocation", str(target.checkpoint))
        .trigger(processingTime=TRIGGER)
        .foreachBatch(write)
        .start()
    )
    return query


def summary(target: Target) -> dict[str, int]:
    """The counts of all buckets together, as of the last batch."""
    return total({name: row[name] for name in COUNTERS} for row in _read_summary(target).values())


def stored(session: SparkSession, servers: str, topic: str) -> tuple[int, int]:
    """(records, distinct records) with an audit header that a topic holds: what had to be delivered."""
    records = (
        session.read.format(FORMAT)
        .option("bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    mark = F.filter("headers", lambda header: header["key"] == wire.HEADER)[0]["value"]
    marked = records.select("key", mark.alias("mark")).where("mark is not null")
    row = (
        marked.groupBy("key", "mark")
        .count()
        .agg(F.sum("count").alias("all"), F.count("mark").alias("distinct"))
        .first()
    )
    assert row is not None, "an aggregate has one row"
    return int(row["all"] or 0), int(row["distinct"] or 0)


def _read_summary(target: Target) -> dict[str, Any]:
    if not target.summary.exists():
        return {}
    buckets: dict[str, Any] = json.loads(target.summary.read_text())
    return buckets


def _write_summary(target: Target, buckets: dict[str, Any]) -> None:
    fresh = target.summary.with_suffix(".new")
    fresh.write_text(json.dumps(buckets))
    fresh.replace(target.summary)


LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""
