"""Writes rows of `delivery_log` as a Parquet file with the columns of the audit's source, for Spark."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.audit.delivery_log import Row
from anabranch.protocol import audit_mark

ROWS: Final = 20_000
"""Rows per write."""
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def write(path: Path, rows: Iterable[Row]) -> set[str]:
    """Write all rows. Returns their topics."""
    topics: set[str] = set()
    with pq.ParquetWriter(path, SCHEMA) as writer:
        left = iter(rows)
        while portion := list(itertools.islice(left, ROWS)):
            topics |= {row.topic for row in portion}
            writer.write_batch(pa.RecordBatch.from_pylist([_columns(row) for row in portion], SCHEMA))
    return topics


def _columns(row: Row) -> dict[str, object]:
    return {
        "key": row.key,
        "value": row.value,
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "timestamp": row.time_ms * 1000,
        "timestampType": 0,
        "headers": None if row.mark == audit_mark.NO_MARK else [{"key": audit_mark.HEADER, "value": row.mark}],
    }
