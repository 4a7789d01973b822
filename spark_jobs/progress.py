"""The progress of a running audit, batch by batch, from Spark's reports: for live view, metrics and report."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class Progress(NamedTuple):
    """The progress of one batch."""

    batch: int
    ended_ms: int
    records: int
    """Records read from the audit topic and, if it is named, from the audited one."""
    duration_ms: int
    state_bytes: int

    @property
    def rate(self) -> float:
        """Records per second during the batch."""
        return 1000 * self.records / self.duration_ms if self.duration_ms else 0.0


def of_query(query: Mapping[str, Any]) -> Progress | None:
    """Return the batch that a StreamingQueryProgress reports; None if it reports none."""
    if not query["numInputRows"]:
        return None  # reported periodically while idle, with the number of the next batch
    duration_ms = int(query["durationMs"].get("triggerExecution", 0))
    started_at = datetime.datetime.fromisoformat(query["timestamp"])
    return Progress(
        batch=int(query["batchId"]),
        ended_ms=round(started_at.timestamp() * 1000) + duration_ms,
        records=int(query["numInputRows"]),
        duration_ms=duration_ms,
        state_bytes=sum(int(one["memoryUsedBytes"]) for one in query["stateOperators"]),
    )


def reached_offsets(query: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """Return (topic, partition) -> the offset before which everything is judged."""
    found: dict[tuple[str, int], int] = {}
    for source in query["sources"]:
        end = source["endOffset"] or {}
        for topic, offsets in (json.loads(end) if isinstance(end, str) else end).items():
            found |= {(topic, int(index)): int(offset) for index, offset in offsets.items()}
    return found
