"""The time of day, for timestamps that leave the process. Everything that waits uses the loop's clock instead."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """Milliseconds since the epoch. Callers take it as an argument, so that simulated runs can replace it."""
    return time.time_ns() // 1_000_000
