"""The time of day of one node: that of its machine, or shifted, as on a machine whose clock is wrong.

Timestamps, retention by time, transaction timeouts, tokens and all else that has a date follow it, as in Kafka. Waiting
does not: sessions, rebalances and locks of shared records use `steady_ms`, other waits the clock of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable


class NodeClock:
    """A clock in milliseconds since the epoch, which can be set ahead or behind."""

    __slots__ = ("_machine_ms", "offset_ms")

    def __init__(self, machine_ms: Callable[[], int]) -> None:
        self._machine_ms = machine_ms
        self.offset_ms = 0
        """How far the node is ahead of its machine."""

    def now_ms(self) -> int:
        """The node's time of day."""
        return self._machine_ms() + self.offset_ms

    def steady_ms(self) -> int:
        """A time for deadlines, which does not jump when the time of day is set."""
        return self._machine_ms()
