"""The timers of a group's members. No record keeps them: a new coordinator restarts them.

A heartbeat only extends a session, which updates one dict; the deadlines are reordered when the first of them has
passed.
"""

from __future__ import annotations

import enum
from dataclasses import field

from anabranch.broker.coordinators.runtime.deadlines import Deadlines
from anabranch.protocol.values import slotted


class Timer(enum.Enum):
    """The timers of a member; the value is the reason for its removal."""

    SESSION = "the member session expired"
    REBALANCE = "the member did not revoke its partitions within its rebalance timeout"
    JOIN = "the classic member failed to join within its rebalance timeout"
    SYNC = "the classic member failed to sync within its rebalance timeout"
    INITIAL = "the initial rebalance delay is over"


@slotted
class Timers:
    """The deadlines of all timers of a group's members."""

    _due: dict[tuple[str, Timer], int] = field(default_factory=dict)
    _order: Deadlines[tuple[str, Timer]] = field(default_factory=Deadlines)

    def set(self, member_id: str, timer: Timer, due_ms: int) -> None:
        """Set a timer, replacing its deadline."""
        self._due[member_id, timer] = due_ms
        self._order.set((member_id, timer), due_ms)

    def extend(self, member_id: str, timer: Timer, due_ms: int) -> None:
        """Set a timer to this deadline, unless its own is later."""
        self.set(member_id, timer, max(due_ms, self._due.get((member_id, timer), due_ms)))

    def set_if_absent(self, member_id: str, timer: Timer, due_ms: int) -> None:
        """Set a timer unless it is running."""
        if (member_id, timer) not in self._due:
            self.set(member_id, timer, due_ms)

    def cancel(self, member_id: str, timer: Timer) -> None:
        """Stop a timer, if it is running."""
        if self._due.pop((member_id, timer), None) is not None:
            self._order.forget((member_id, timer))

    def forget(self, member_id: str) -> None:
        """Stop all timers of a removed member."""
        for timer in Timer:
            self.cancel(member_id, timer)

    def due(self, member_id: str, timer: Timer) -> int | None:
        """Return when a timer expires; None if it is not running."""
        return self._due.get((member_id, timer))

    def first(self) -> int | None:
        """Return the earliest deadline, or an earlier time."""
        return self._order.first()

    def pop_due(self, now_ms: int) -> list[tuple[str, Timer]]:
        """Return the expired timers. Each stays until it is set or cancelled, or its member is removed."""
        over = []
        for key in self._order.pop_due(now_ms):
            due_ms = self._due.get(key)
            if due_ms is None:
                continue
            if due_ms <= now_ms:
                over.append(key)
            else:
                self._order.set(key, due_ms)
        return over
