"""The audit as one batch job: of an audit topic as it is now, or of its copy in Parquet.

Both kinds of input have the columns of Spark's Kafka source (`source.COLUMNS`, with headers where an audited topic is
compared), so a copy is made by `topic(...).write.parquet(path)`. The buckets, the checks and the rows are those of the
stream (`stages`); a bucket takes everything in one task, a portion after the other. What is found does not depend on
batches, so both find the same.
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
"""Of runs and stretches that a bucket takes at once, a hundred thousand events or two: while they are checked, each
needs about 600 bytes."""
_STATE: Final = "state"
_SCHEMA: Final = f"{stages.OUTPUT_SCHEMA}, packed binary"
_COLUMNS: Final = ("kind", "bucket", "detail", "packed")


@dataclass(frozen=True, slots=True)
class Backfill:
    """The outcome of a batch audit; its rows are those that a stream over the same records would give."""

    judgement: dict[str, int]
    violations: list[str]
    """A line of JSON each, sorted."""
    tallies: list[Tally]
    beside: Tallies
    unread: list[Unread]


def run(records: DataFrame, scope: Scope) -> Backfill:
    """Audit records of an audit topic and, if there is one, of the audited topic; the columns are the source's."""

    def take(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
        number, bucket = int(key[0]), Bucket(pending=Pending(keep=True))
        rows: list[tuple[Any, ...]] = [(*row, None) for row in take_all(bucket, number, frame, scope)]
        return pd.DataFrame([*rows, (_STATE, number, None, bucket.pack())], columns=list(_COLUMNS))

    checked = audit.prepared(records, scope.expect).groupBy("bucket").applyInPandas(take, _SCHEMA).persist()
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
    """Judge all prepared rows of one bucket. Returns rows of output, as if it had been one batch."""
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
    """Prepared rows in the order of each log, and of each log the same share: what was stored and delivered meets."""
    frame = frame.sort_values(["partition", "offset"], kind="stable")
    count = -(-int(frame["value"].map(len).sum()) // PORTION_BYTES)
    log = frame.groupby(["stored", "partition"])["offset"]
    for _, portion in frame.groupby(log.cumcount() * count // log.transform("size")):
        yield portion
