"""The audit as one batch job: of the current audit topic, or of its copy in Parquet.

Both inputs have the columns of Spark's Kafka source (`source.COLUMNS`, with headers if an audited topic is compared),
so `topic(...).write.parquet(path)` makes a copy. The buckets, checks and rows are those of the stream (`stages`); one
task processes a whole bucket, portion by portion. The results do not depend on batches, so both find the same.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
from pyspark.sql import DataFrame

from anabranch.spark_jobs import audit, stages
from anabranch.spark_jobs.bucket import Bucket
from anabranch.spark_jobs.pending import Pending
from anabranch.spark_jobs.scope import Scope
from anabranch.spark_jobs.stages import BESIDE, COUNT, VIOLATION
from anabranch.spark_jobs.tallies import Tallies
from anabranch.spark_jobs.verdict import Tally, Unread

PORTION_BYTES: Final = 8 << 20
"""Size of the runs and stretches that a bucket processes at once, one or two hundred thousand events: during checks
each needs about 600 bytes."""
_STATE: Final = "state"
_SCHEMA: Final = f"{stages.OUTPUT_SCHEMA}, packed binary"
_COLUMNS: Final = ("kind", "bucket", "detail", "packed")


@dataclass(frozen=True, slots=True)
class Backfill:
    """The outcome of a batch audit; its rows equal those of a stream over the same records."""

    judgement: dict[str, int]
    violations: list[str]
    """Lines of JSON, sorted."""
    tallies: list[Tally]
    beside: Tallies
    unread: list[Unread]


def run(records: DataFrame, scope: Scope) -> Backfill:
    """Audit records of an audit topic and, if given, of the audited topic; with the source's columns."""

    def take(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
        number, bucket = int(key[0]), Bucket(pending=Pending(keep=True))
        rows: list[tuple[Any, ...]] = [(*row, None) for row in take_all(bucket, number, frame, scope)]
        return pd.DataFrame([*rows, (_STATE, number, None, bucket.pack())], columns=list(_COLUMNS))

    checked = audit.prepare_records(records, scope.expect).groupBy("bucket").applyInPandas(take, _SCHEMA).persist()
    try:
        rows = checked.where(f"kind != '{_STATE}'").select("kind", "detail").collect()
        counts = [json.loads(row["detail"]) for row in rows if row["kind"] == COUNT]
        states = checked.where(f"kind = '{_STATE}'").select("bucket", "packed")
        ending = functools.partial(stages.finish_all, scope.expect, audit.groups(counts))
        rows += states.mapInPandas(ending, stages.OUTPUT_SCHEMA).select("kind", "detail").collect()
    finally:
        checked.unpersist()
    counts = [json.loads(row["detail"]) for row in rows if row["kind"] == COUNT]
    beside = Tallies()
    for row in rows:
        if row["kind"] == BESIDE:
            beside.add(Tallies.of_json(json.loads(row["detail"])))
    return Backfill(
        judgement=audit.judgement(counts),
        violations=sorted(row["detail"] for row in rows if row["kind"] == VIOLATION),
        tallies=stages.tallies_of(counts),
        beside=beside,
        unread=stages.unread_in(counts),
    )


def take_all(bucket: Bucket, number: int, frame: pd.DataFrame, scope: Scope) -> Iterator[tuple[str, int, str]]:
    """Judge all prepared rows of one bucket. Returns output rows, as for one batch."""
    count, beside = None, Tallies()
    for portion in portions(frame):
        for row in stages.take(bucket, number, portion, scope):
            kind, _, detail = row
            if kind == COUNT:
                count = row
            elif kind == BESIDE:
                beside.add(Tallies.of_json(json.loads(detail)))
            else:
                yield row
    if count is not None:
        yield count
        yield BESIDE, number, json.dumps(beside.as_json())


def portions(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield prepared rows in the order of each log, with equal shares: so stored and delivered records meet."""
    frame = frame.sort_values(["partition", "offset"], kind="stable")
    count = -(-int(frame["value"].map(len).sum()) // PORTION_BYTES)
    log = frame.groupby(["stored", "partition"])["offset"]
    for _, portion in frame.groupby(log.cumcount() * count // log.transform("size")):
        yield portion
