"""The metrics of a consumer: progress, lag behind gates, and how long gates were closed."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.clients.consumer.core import ConsumerCore
from anabranch.clients.consumer.progress import UNKNOWN, PartitionProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMetrics:
    """A consumer's metrics at one moment; counts are since its start. Lags are as of the last fetches."""

    records_delivered: int = 0
    partitions: int = 0
    lag_records: int = 0
    """Offsets between the positions and the high watermarks."""
    fetch_lag_records: int = 0
    """The part of the lag that is not fetched yet."""
    closed_gates: int = 0
    """Key epochs that wait for others to be read and committed."""
    gated_partitions: int = 0
    """Assigned partitions that wait behind a closed gate."""
    gated_lag_records: int = 0
    """The part of the lag in these partitions."""
    handoffs: int = 0
    """Gates that were found closed and have opened."""
    last_handoff_ms: float = 0.0
    """How long the last of them was closed."""
    longest_handoff_ms: float = 0.0
    rebalances: int = 0
    """Assignments received from the group."""
    commits: int = 0
    """OffsetCommits that the group has accepted."""


def metrics_of(core: ConsumerCore, *, delivered: int, commits: int) -> ConsumerMetrics:
    """Return the metrics of a consumer with these counts."""
    assignment, gates = core.assignment, core.gates.views()
    behind_gates = {(view.topic, view.key_epoch.partition) for view in gates}
    gated = [progress for progress in assignment if progress.partition in behind_gates]
    return ConsumerMetrics(
        records_delivered=delivered,
        partitions=len(assignment),
        lag_records=sum(_lag(progress, progress.position) for progress in assignment),
        fetch_lag_records=sum(_lag(progress, progress.fetch_offset) for progress in assignment),
        closed_gates=len(gates),
        gated_partitions=len(gated),
        gated_lag_records=sum(_lag(progress, progress.position) for progress in gated),
        handoffs=core.gates.handoffs.count,
        last_handoff_ms=core.gates.handoffs.last_ms,
        longest_handoff_ms=core.gates.handoffs.longest_ms,
        rebalances=core.ownership.rebalances,
        commits=commits,
    )


def _lag(progress: PartitionProgress, offset: int) -> int:
    """Return the distance from an offset to the high watermark; 0 while either is unknown."""
    return 0 if UNKNOWN in (offset, progress.high_watermark) else max(0, progress.high_watermark - offset)
