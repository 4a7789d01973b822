"""Writes violations: Parquet files with typed columns, a topic, and listeners that are called at once.

Each batch writes its own file atomically, and a repeated batch writes the same file again. In a topic a violation may
occur twice: its key has the batch and the index in it, so that compaction or a reader can drop one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.spark_jobs.writer import TopicWriter

LOSSES: Final = "lost"
"""The name of the file of losses that are known only at the end."""
NAMED_MAX: Final = 1000
"""The maximum number of violations on a page or a terminal; the files have all."""

_PLACE: Final = pa.struct(
    [
        *(("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("generation", pa.int32())),
        *(("producer", pa.uint64()), ("sequence", pa.int64()), ("member", pa.string()), ("incarnation", pa.uint64())),
        *(("group_generation", pa.int32()), ("time_ms", pa.int64())),
    ]
)
SCHEMA: Final = pa.schema(
    [
        *(("kind", pa.string()), ("group", pa.string()), ("topic", pa.string()), ("key", pa.string())),
        *(("producer", pa.uint64()), ("delivered", _PLACE), ("before", _PLACE), ("next", _PLACE)),
        ("sequences", pa.list_(pa.struct([("first", pa.int64()), ("last", pa.int64())]))),
        *(("partition", pa.int32()), ("offset", pa.int64()), ("stored", pa.string()), ("got", pa.string())),
        *(("member", pa.string()), ("meaning", pa.string()), ("story", pa.string())),
    ]
)
"""`story` is all of it as one line of JSON, by which two audits can be compared."""

Tell = Callable[[dict[str, Any]], None]


def write(path: Path, lines: Sequence[str]) -> None:
    """Write violations, each a line of JSON, to a file atomically."""
    fresh = path.with_name(f".{path.name}.new")  # hidden: Spark ignores it when it reads the directory
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([_row(line) for line in lines], SCHEMA), fresh, compression="zstd")
    fresh.replace(path)


def read(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the stories of all violations in a directory, batch by batch."""
    for path in sorted(directory.glob("*.parquet")):
        for line in pq.read_table(path, columns=["story"])["story"].to_pylist():
            yield json.loads(line)


def count(directory: Path) -> int:
    """Return the number of violations, without reading them."""
    return sum(pq.read_metadata(path).num_rows for path in directory.glob("*.parquet"))


@dataclass
class Violations:
    """The outputs of one audit."""

    directory: Path
    topic: TopicWriter | None = None
    listeners: list[Tell] = field(default_factory=list)
    """Called with each violation as it is found; not again after a restart."""

    def take(self, name: str, lines: Sequence[str], now_ms: int) -> None:
        """Write the violations of a batch; `name` is the batch's."""
        path = self.directory / f"{name}.parquet"
        if not lines:
            path.unlink(missing_ok=True)
            return
        write(path, lines)
        if self.topic is not None:
            pairs = [(f"{name}/{place}".encode(), line.encode()) for place, line in enumerate(lines)]
            self.topic.write(pairs, now_ms)
        for line in lines[:NAMED_MAX]:
            for listener in self.listeners:
                listener(json.loads(line))


def batch_name(batch: int) -> str:
    """Return the name of a batch's file; names sort in batch order."""
    return f"batch-{batch:06}"


def _row(line: str) -> dict[str, Any]:
    story = json.loads(line)
    spans = [{"first": first, "last": last} for first, last in story.get("sequences", ())]
    return {**story, "sequences": spans, "story": line}
