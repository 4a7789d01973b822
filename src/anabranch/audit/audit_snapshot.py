"""The current state of a running audit, for the live view and for Prometheus."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.spark_jobs.progress import Progress
from anabranch.spark_jobs.tallies import HandOff
from anabranch.spark_jobs.verdict import KINDS

RECENT_MAX: Final = 6
SPEEDS_KEPT: Final = 40
SPEED_HOLDS_MS: Final = 10_000


@dataclass(slots=True)
class AuditSnapshot:
    """The current state of one audit."""

    topic: str
    judgement: Mapping[str, int] = field(default_factory=dict)
    """Kind of violation -> current count; a record that counts as lost may still be delivered."""
    progress: list[Progress] = field(default_factory=list)
    behind: int = 0
    """The number of audit topic records that no batch has read yet."""
    delivered_ms: int = 0
    """The time of the newest audited delivery."""
    speeds: list[float] = field(default_factory=list)
    """Deliveries audited per second, in the newest batches."""
    answered_ms: int = 0
    """When a broker last reported the audit topic's end offsets."""
    silent: bool = False
    """Whether no broker has answered since."""
    hand_offs: Sequence[HandOff] = ()
    recent_violations: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=RECENT_MAX))
    """The newest violations."""

    def add_event(self, story: Mapping[str, Any]) -> None:
        """Add a violation."""
        self.recent_violations.append(story)

    def add_progress(self, batch: Progress) -> bool:
        """Add a finished batch. Returns False if it was added before."""
        if self.progress and self.progress[-1].batch >= batch.batch:
            return False
        self.progress.append(batch)
        return True

    @property
    def records(self) -> int:
        """The number of records that all batches since the audit's start have read."""
        return sum(one.records for one in self.progress)

    def judge(self, judgement: Mapping[str, int], busy_ms: int) -> None:
        """Set the verdict after batches that took `busy_ms` together."""
        events = judgement.get("events", 0) - self.judgement.get("events", 0)
        if busy_ms > 0 and events > 0:
            self.speeds = [*self.speeds, 1000 * events / busy_ms][-SPEEDS_KEPT:]
        self.judgement = judgement

    def speed(self, now_s: float) -> float:
        """Deliveries audited per second now; 0 if no batch has ended recently."""
        recent = self.progress and now_s * 1000 - self.progress[-1].ended_ms < SPEED_HOLDS_MS
        return self.speeds[-1] if recent and self.speeds else 0.0

    @property
    def violations(self) -> dict[str, int]:
        """Kind -> count, without zeros."""
        return {kind: self.judgement[kind] for kind in KINDS if self.judgement.get(kind)}
