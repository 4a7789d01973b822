"""The audit as one Structured Streaming query: audit topic in, violations and a running summary out.

    anabranch source -> bucket by key -> state per bucket (transformWithState) -> rows -> foreachBatch

Every key falls into one of a few buckets; a bucket's state holds all its keys (`checks.Bucket`) and lives in Spark's
checkpointed state store, so it is exactly as old as the offsets. A batch emits its violations, and the *cumulative*
counts of every bucket it touched: writing either twice, after a restart, changes nothing. The audited topic itself, if
it is named, runs through the same query: what it stores and nobody got is lost.
"""

from __future__ import annotations

import json
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
from protocol.errors import DecodeError
from spark_jobs import checks
from spark_jobs.checks import Bucket, Event, Loss, Violation
from spark_jobs.source import FORMAT

BUCKETS: Final = 8
TRIGGER: Final = "2 seconds"
"""A batch takes half a second of processor time however little it holds, on machines that are busy being audited."""
SUMMARY: Final = "summary"
OUTPUT_SCHEMA: Final = "kind string, bucket int, detail string"
STATE: Final = "bucket"
ROWS_PER_TRIGGER: Final = 100_000
"""Of a backlog: enough to be worth a batch, few enough that the first counts come early."""

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
_MARK: Final = np.dtype([("producer", ">u8"), ("sequence", ">u8")])
assert _MARK.itemsize == len(wire.encode_header(0, 0)), "the dtype is the wire format's header"


@dataclass(frozen=True, slots=True)
class Target:
    """What to audit, and where its output goes."""

    servers: str
    topic: str
    """The audit topic."""
    directory: Path
    expect: str | None = None
    """The audited topic: what it stores must have been delivered."""

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

    @property
    def losses(self) -> Path:
        """JSON lines about every key of which something was lost; written with the verdict."""
        return self.violations / "lost.jsonl"


class BucketAuditor(StatefulProcessor):
    """Checks the deliveries of one bucket, batch by batch."""

    _state: ValueState

    def __init__(self, expect: str | None) -> None:
        self._expect = expect

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark."""
        self._state = handle.getValueState(STATE, "packed binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Called by Spark with the rows of one bucket in one batch."""
        frame = pd.concat(list(rows), ignore_index=True)
        packed = self._state.get()
        bucket = Bucket.unpack(bytes(packed[0]) if packed is not None else None)
        records = frame[frame["stored"]]
        bucket.store(_stored(records["key"].tolist(), records["value"].tolist()))
        # A key's events share one audit partition; their offsets there are the order of delivery.
        deliveries = frame[~frame["stored"]].sort_values(["partition", "offset"], kind="stable")
        violations = bucket.check(_events(deliveries["key"].tolist(), deliveries["value"].tolist()))
        self._state.update((bucket.pack(),))
        number = int(key[0])
        undelivered = bucket.undelivered(self._expect) if self._expect else dict.fromkeys(bucket.groups(), 0)
        facts = {**bucket.counts, "undelivered": undelivered, "by_generation": bucket.by_generation}
        details = [(SUMMARY, number, json.dumps(facts))]
        details += [(one.kind, number, json.dumps(describe(one))) for one in violations]
        yield pd.DataFrame(details, columns=["kind", "bucket", "detail"])

    def close(self) -> None:
        """Called by Spark."""


def _stored(keys: list[bytes | None], marks: list[bytes]) -> Iterator[tuple[int, bytes, int]]:
    """(producer, key, sequence) of records of the audited topic, from their audit headers."""
    for mark in marks:
        if len(mark) != _MARK.itemsize:
            wire.decode_header(mark)  # raises
    columns = np.frombuffer(b"".join(marks), dtype=_MARK)
    for key, producer, sequence in zip(keys, columns["producer"].tolist(), columns["sequence"].tolist(), strict=True):
        yield producer, bytes(key or b""), sequence


def _events(keys: list[bytes | None], values: list[bytes]) -> Iterator[Event]:
    """Audit records taken apart, the fixed parts of all of them at once."""
    size = wire.FIXED.size
    for value in values:
        if len(value) < size or value[0] != wire.VERSION:
            raise DecodeError(f"not an audit event, so this is not an audit topic: {bytes(value[:size]).hex()}")
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
        story[name] = _place(one)
    return story


def describe_loss(loss: Loss) -> dict[str, Any]:
    """What of a key is lost, and what was the last that its group got of it."""
    return {
        "kind": checks.LOST,
        "group": loss.group,
        "topic": loss.topic,
        "producer": loss.producer,
        "key": loss.key.decode(errors="backslashreplace"),
        "sequences": loss.sequences,
        "newest": None if loss.newest is None else _place(loss.newest),
    }


def _place(event: Event) -> dict[str, Any]:
    return {
        "topic": event.topic,
        "partition": event.partition,
        "offset": event.offset,
        "generation": event.generation,
        "sequence": event.sequence,
        "producer": event.producer,
        "member": event.member,
        "time_ms": event.time_ms,
    }


def start(session: SparkSession, target: Target, on_progress: Callable[[dict[str, Any]], None]) -> StreamingQuery:
    """Start, or continue from its checkpoint, the audit of one topic. `on_progress` gets the summary of each batch."""
    target.violations.mkdir(parents=True, exist_ok=True)
    target.losses.unlink(missing_ok=True)  # what was lost at the last verdict may come yet
    checked = (
        _rows(session, target)
        .groupBy("bucket")
        .transformWithStateInPandas(
            statefulProcessor=BucketAuditor(target.expect),
            outputStructType=OUTPUT_SCHEMA,
            outputMode="Append",
            timeMode="None",
        )
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


def _rows(session: SparkSession, target: Target) -> DataFrame:
    """What the checks need of both topics: an event of the audit topic, the audit header of a record of the other."""
    topics = [target.topic] if target.expect is None else [target.topic, target.expect]
    records = (
        session.readStream.format(FORMAT)
        .option("bootstrap.servers", target.servers)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_PER_TRIGGER)
        .option("includeHeaders", str(target.expect is not None).lower())
        .load()
    )
    stored = F.col("topic") == F.lit(target.expect) if target.expect is not None else F.lit(False)
    value = F.col("value")
    if target.expect is not None:
        mark = F.filter("headers", lambda header: header["key"] == wire.HEADER)[0]["value"]
        value = F.when(stored, mark).otherwise(value)
    return records.select(
        "key",
        value.alias("value"),
        "partition",
        "offset",
        stored.alias("stored"),
        F.pmod(F.hash("key"), F.lit(BUCKETS)).alias("bucket"),
    ).where("value is not null")


def summary(target: Target) -> dict[str, int]:
    """The counts of all buckets together, as of the last batch."""
    return checks.total(list(_read_summary(target).values()))


def write_losses(session: SparkSession, target: Target) -> None:
    """Write down what was lost, key by key, from the state that the query left behind."""
    groups = checks.groups(_read_summary(target).values())
    rows = (
        session.read.format("statestore")
        .option("path", str(target.checkpoint))
        .option("stateVarName", STATE)
        .load()
        .selectExpr("value.packed as packed")
        .collect()
    )
    stories = [
        json.dumps(describe_loss(loss))
        for row in rows
        for loss in Bucket.unpack(bytes(row["packed"])).losses(target.expect, groups)
    ]
    target.losses.write_text("".join(f"{story}\n" for story in stories))


def _read_summary(target: Target) -> dict[str, Any]:
    if not target.summary.exists():
        return {}
    buckets: dict[str, Any] = json.loads(target.summary.read_text())
    return buckets


def _write_summary(target: Target, buckets: dict[str, Any]) -> None:
    fresh = target.summary.with_suffix(".new")
    fresh.write_text(json.dumps(buckets))
    fresh.replace(target.summary)
