"""The audit as one Structured Streaming query: audit topic in, violations and a running summary out.

    anabranch source -> prepare -> state per bucket (transformWithState) -> rows -> foreachBatch

A bucket's state holds all its keys (`bucket.Bucket`) and lives in Spark's checkpointed state store, so it is exactly as
old as the offsets. A batch that runs again after a restart replaces what it wrote the first time. The audited topic
itself, if it is named, runs through the same query: stored records that were not delivered to a group are lost, and
payloads are compared.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.protocol import audit_mark
from anabranch.spark_jobs import inputs, stages, verdict
from anabranch.spark_jobs.scope import Scope
from anabranch.spark_jobs.source import FORMAT
from anabranch.spark_jobs.source_options import Client
from anabranch.spark_jobs.stages import BESIDE, COUNT, VIOLATION, BucketAuditor
from anabranch.spark_jobs.tallies import Ledger, Tallies
from anabranch.spark_jobs.violations import LOSSES, Violations, batch_name

TRIGGER: Final = "1 second"
ROWS_PER_TRIGGER: Final = 200_000
"""Number of records per batch. A record of the audit topic holds many events."""
NO_GROUP: Final = ""
"""The group's name for lost records in a report without any group."""


@dataclass(frozen=True, slots=True)
class Target:
    """The input, rules and output directory of an audit."""

    servers: str
    topic: str
    """The audit topic."""
    directory: Path
    scope: Scope = Scope()
    rows_per_trigger: int = ROWS_PER_TRIGGER
    source: str = FORMAT
    """The source that reads the topics: one of `inputs.SOURCES`."""
    fail_on_data_loss: bool = True
    """End the query if unread records are deleted."""
    client: Client = field(default_factory=dict, repr=False)
    """The client's security properties."""

    @property
    def expect(self) -> str | None:
        """The audited topic: its stored records must have been delivered."""
        return self.scope.expect

    @property
    def checkpoint(self) -> Path:
        """The directory of Spark's checkpoint: offsets and state."""
        return self.directory / "checkpoint"

    @property
    def summary(self) -> Path:
        """The latest cumulative counts of every bucket."""
        return self.directory / "summary.json"

    @property
    def beside(self) -> Path:
        """The file of counts beside the checks: a `tallies.Ledger`."""
        return self.directory / "tallies.json"

    @property
    def ending(self) -> Path:
        """The counts of lost records at the last verdict."""
        return self.directory / "ending.json"

    @property
    def violations(self) -> Path:
        """One file per batch with violations, and one of lost records."""
        return self.directory / "violations"


def start(
    session: SparkSession,
    target: Target,
    on_progress: Callable[[dict[str, Any]], None],
    outputs: Violations | None = None,
) -> StreamingQuery:
    """Start, or continue from its checkpoint, the audit of one topic. `on_progress` gets the summary of each batch."""
    violations = outputs or Violations(target.violations)
    violations.take(LOSSES, [], 0)  # records lost at the last verdict may still be delivered
    target.ending.unlink(missing_ok=True)
    checked = (
        prepare_records(_rows(session, target), target.expect)
        .groupBy("bucket")
        .transformWithStateInPandas(
            statefulProcessor=BucketAuditor(target.scope),
            outputStructType=stages.OUTPUT_SCHEMA,
            outputMode="Append",
            timeMode="None",
        )
    )

    def write(batch: DataFrame, number: int) -> None:
        rows = batch.collect()
        counts = _read(target.summary)
        counts.update({str(row["bucket"]): json.loads(row["detail"]) for row in rows if row["kind"] == COUNT})
        clock_ms = max((one["clock_ms"] for one in counts.values()), default=0)
        found = sorted(row["detail"] for row in rows if row["kind"] == VIOLATION)
        violations.take(batch_name(number), found, clock_ms)
        ledger = read_ledger(target)
        ledger.take(number, [Tallies.of_json(json.loads(row["detail"])) for row in rows if row["kind"] == BESIDE])
        _write(target.beside, ledger.as_json())
        _write(target.summary, counts)
        on_progress({"batch": number, **summary(target)})

    query: StreamingQuery = (
        checked.writeStream.outputMode("append")
        .option("checkpointLocation", str(target.checkpoint))
        .trigger(processingTime=TRIGGER)
        .foreachBatch(write)
        .start()
    )
    return query


def prepare_records(records: DataFrame, expect: str | None) -> DataFrame:
    """Prepare rows for the buckets, from records with the source's columns; headers are needed with `expect`."""
    stored = F.col("topic") == F.lit(expect) if expect is not None else F.lit(False)
    mark = F.lit(None).cast("binary")
    if expect is not None:
        mark = F.try_element_at(F.filter("headers", lambda header: header["key"] == audit_mark.HEADER), F.lit(-1))[
            "value"
        ]
    chosen = records.select(
        "key",
        "value",
        mark.alias("mark"),
        stored.alias("stored"),
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("time_ms"),
    )
    return chosen.mapInArrow(stages.prepare, stages.PREPARED_SCHEMA)


def _rows(session: SparkSession, target: Target) -> DataFrame:
    topics = [target.topic] if target.expect is None else [target.topic, target.expect]
    headers = target.expect is not None
    return inputs.stream(
        session,
        target.servers,
        topics,
        headers=headers,
        rows=target.rows_per_trigger,
        source=target.source,
        fail_on_data_loss=target.fail_on_data_loss,
        isolation_level=target.scope.isolation_level,
        client=target.client,
    )


def summary(target: Target) -> dict[str, int]:
    """Return the verdict as of the last batch; `waiting` counts stored records that are not delivered yet, and `passed`
    those of them that a group has read past.
    """
    counts = _read(target.summary).values()
    passed = sum(one.get("passed", 0) for one in counts)
    return {**judgement(counts), "waiting": waiting(counts), "passed": passed}


def tallies(target: Target) -> list[verdict.Tally]:
    """Return the counts per group, topic and generation, as of the last batch or, if there is one, the verdict."""
    return stages.tallies_of([*_read(target.summary).values(), *_read(target.ending).get("counts", ())])


def unread(target: Target) -> list[verdict.Unread]:
    """Return the places of lost records, as of the verdict."""
    return stages.unread_in(_read(target.ending).get("counts", ()))


def read_ledger(target: Target) -> Ledger:
    """Read the counts beside the checks."""
    found = _read(target.beside)
    return Ledger.of_json(found) if found else Ledger()


def judgement(counts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Compute the verdict from the counts of all buckets."""
    counts = list(counts)
    keys, forgotten = (sum(one.get(name, 0) for one in counts) for name in ("keys", "forgotten"))
    return verdict.judge(stages.tallies_of(counts), keys=keys, forgotten=forgotten)


def waiting(counts: Iterable[Mapping[str, Any]]) -> int:
    """Return how many stored records were not delivered, over all groups."""
    counts = list(counts)
    # A bucket without deliveries to a group does not know the group: all its stored records are waiting.
    return sum(one["waiting"].get(group, one["stored"]) for group in groups(counts) for one in counts)


def groups(counts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return every group with a delivery of the expected topic."""
    return sorted({group for one in counts for group in one["waiting"]}) or [NO_GROUP]


def finish(session: SparkSession, target: Target, outputs: Violations | None = None) -> dict[str, int]:
    """Judge everything that the query has read, and write the losses. Returns the verdict."""
    counts = list(_read(target.summary).values())
    states = (
        session.read.format("statestore")
        .option("path", str(target.checkpoint))
        .option("stateVarName", stages.STATE)
        .load()
        .selectExpr("key.bucket as bucket", "value.packed as packed")
    )
    ending = functools.partial(stages.finish_all, target.expect, groups(counts))
    rows = states.mapInPandas(ending, stages.OUTPUT_SCHEMA).collect()
    lost = sorted(row["detail"] for row in rows if row["kind"] == VIOLATION)
    clock_ms = max((one["clock_ms"] for one in counts), default=0)
    (outputs or Violations(target.violations)).take(LOSSES, lost, clock_ms)
    ending_counts = [json.loads(row["detail"]) for row in rows if row["kind"] == COUNT]
    _write(target.ending, {"counts": ending_counts})
    return judgement([*counts, *ending_counts])


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _write(path: Path, found: Mapping[str, Any]) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(found))
    fresh.replace(path)
