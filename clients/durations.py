"""A summary of durations: count, last and longest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Durations:
    """Count, last and longest duration."""

    count: int = 0
    last_ms: float = 0.0
    longest_ms: float = 0.0

    def record(self, taken_s: float) -> None:
        """Record a duration, in seconds."""
        self.count += 1
        self.last_ms = taken_s * 1000
        self.longest_ms = max(self.longest_ms, self.last_ms)
