"""How a running audit keeps up, batch by batch, as Spark tells it: for the live view, the metrics and the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Progress(NamedTuple):
    """One batch."""

    batch: int
    ended_ms: int
    records: int
    """Read from the audit topic and, if it is named, from the audited one."""
    duration_ms: int
    state_bytes: int

    @property
    def rate(self) -> float:
        """Records per second while the batch ran."""
        return 1000 * self.records / self.duration_ms if self.duration_ms else 0.0


def of_query(told: Mapping[str, Any], now_ms: int) -> Progress:
    """From a StreamingQueryProgress, which is a mapping too."""
    return Progress(
        batch=int(told["batchId"]),
        ended_ms=now_ms,
        records=int(told["numInputRows"]),
        duration_ms=int(told["durationMs"].get("triggerExecution", 0)),
        state_bytes=sum(int(one["memoryUsedBytes"]) for one in told["stateOperators"]),
    )


def reached(told: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """(topic, partition) -> the offset up to which everything is judged."""
    return {
        (topic, int(index)): int(offset)
        for source in told["sources"]
        for topic, offsets in (source["endOffset"] or {}).items()
        for index, offset in offsets.items()
    }
