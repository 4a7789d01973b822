"""The time of a cluster elsewhere, for tests in Python that block.

control.clock.advance("45s")                # sessions, timeouts and retention of 45 seconds, in some milliseconds
with control.clock.stopped():
    ...                                     # no timer of the cluster rings
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Ask = Callable[..., Any]
"""`ControlClient.ask`."""


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
        """How many seconds go by in one; 0: it stands still."""
        return float(self.row()["pace"])

    def row(self) -> dict[str, Any]:
        """All that is known of it: `time_ms`, `at` (the clock of events), `pace`."""
        found: dict[str, Any] = self._ask("GET", "/v1/clock")
        return found

    def advance(self, span: str | float) -> None:
        """Move the cluster's time on, and return when all that was due on the way has happened.

        Args:
            span: How far: "500ms", "45s", "5m", "2h", "7d", or seconds.

        Raises:
            ControlError: It is no span of time.
        """
        self._ask("POST", "/v1/clock", {"advance": span})

    def stop(self) -> None:
        """Let it stand still unless it is moved on."""
        self.run(0)

    def run(self, pace: float = 1.0) -> None:
        """Let it go on, so many seconds in one. ControlError if that is less than none."""
        self._ask("POST", "/v1/clock", {"pace": pace})

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """A block in which it stands still unless it is moved on."""
        before = self.pace
        self.stop()
        try:
            yield
        finally:
            self.run(before)
