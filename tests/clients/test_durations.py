"""Of many durations the count, the last and the longest remain."""

from __future__ import annotations

from anabranch.clients.durations import Durations


def test_longest_is_kept_and_last_changes() -> None:
    durations = Durations()
    for taken_s in (0.25, 0.5, 0.125):
        durations.record(taken_s)
    assert durations == Durations(count=3, last_ms=125.0, longest_ms=500.0)
