"""A blocking client for a cluster's clock, for synchronous Python tests.

control.clock.advance("45s")                # sessions, timeouts and retention of 45 seconds, in some milliseconds
with control.clock.stopped():
    ...                                     # no timer of the cluster rings
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from anabranch.protocol.suggestion import suggest_arguments

if TYPE_CHECKING:
    from anabranch.control.clock_routes import ClockRow

Ask = Callable[..., Any]


@suggest_arguments
class ClockClient:
    """The clock of a cluster."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    @property
    def time_ms(self) -> int:
        """The time of day in the cluster, in milliseconds since the epoch."""
        return int(self.row()["time_ms"])

    @property
    def pace(self) -> float:
        """The pace: cluster seconds per real second; 0 if stopped."""
        return float(self.row()["pace"])

    def row(self) -> ClockRow:
        """The clock as a row: `time_ms`, `at` (the clock of events), `pace`."""
        found: ClockRow = self._ask("GET", "/v1/clock")
        return found

    def advance(self, span: str | float) -> None:
        """Advance the cluster's time, and wait until everything due until then has happened.

        Args:
            span: How far: "500ms", "45s", "5m", "2h", "7d", or seconds.

        Raises:
            ControlError: The span cannot be parsed.
        """
        self._ask("POST", "/v1/clock", {"advance": span})

    def stop(self) -> None:
        """Stop the clock; only `advance` moves it."""
        self.run(0)

    def run(self, pace: float = 1.0) -> None:
        """Run the clock at this pace, in cluster seconds per real second. ControlError if it is negative."""
        self._ask("POST", "/v1/clock", {"pace": pace})

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """A block during which the clock is stopped; only `advance` moves it."""
        before = self.pace
        self.stop()
        try:
            yield
        finally:
            self.run(before)
