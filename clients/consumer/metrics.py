"""What a consumer tells of itself: how far it is, what waits behind its gates, and how long gates were closed."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.clients.consumer.core import ConsumerCore
from anabranch.clients.consumer.progress import UNKNOWN, PartitionProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMetrics:
    """A consumer at one moment; counts are since its start. Lags are as of the last fetches."""

    records_delivered: int = 0
    """Handed to the application."""
    partitions: int = 0
    """Assigned now."""
    lag_records: int = 0
    """Offsets between the positions and the high watermarks."""
    fetch_lag_records: int = 0
    """The part of it that is not fetched either."""
    closed_gates: int = 0
    """Segments that wait for others to be read and committed."""
    gated_partitions: int = 0
    """Assigned partitions that stop at a closed gate."""
    gated_lag_records: int = 0
    """The part of the lag that is theirs."""
    handoffs: int = 0
    """Gates that were found closed and have opened."""
    last_handoff_ms: float = 0.0
    """For how long the last of them was closed."""
    longest_handoff_ms: float = 0.0
    rebalances: int = 0
    """Assignments taken from the group."""
    commits: int = 0
    """OffsetCommits that the group has accepted."""


def metrics_of(core: ConsumerCore, *, delivered: int, commits: int) -> ConsumerMetrics:
    """The metrics of a consumer that has handed out and committed so often."""
    assignment, gates = core.assignment, core.gates.views()
    behind_gates = {(view.topic, view.segment.partition) for view in gates}
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
    """From an offset to the high watermark; nothing while either is unknown."""
    return 0 if UNKNOWN in (offset, progress.high_watermark) else max(0, progress.high_watermark - offset)
