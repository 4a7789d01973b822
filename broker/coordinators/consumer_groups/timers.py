"""The deadlines of a group's members, which no record keeps: a coordinator that takes over begins them anew.

A heartbeat only moves a session's end later, which touches one dict: the order of the deadlines is worked out when the
first of them is over.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from anabranch.broker.coordinators.runtime.deadlines import Deadlines


class Timer(enum.Enum):
    """The value says why a member goes that lets it run out."""

    SESSION = "the member session expired"
    REBALANCE = "the member did not give its partitions up within its rebalance timeout"
    JOIN = "the classic member failed to join within its rebalance timeout"
    SYNC = "the classic member failed to sync within its rebalance timeout"
    INITIAL = "the group has waited for more members"


@dataclass(slots=True)
class Timers:
    """When which timer of which member runs out."""

    _due: dict[tuple[str, Timer], int] = field(default_factory=dict)
    _order: Deadlines[tuple[str, Timer]] = field(default_factory=Deadlines)

    def set(self, member_id: str, timer: Timer, due_ms: int) -> None:
        """Let a timer run out then, whatever was said before."""
        self._due[member_id, timer] = due_ms
        self._order.set((member_id, timer), due_ms)

    def extend(self, member_id: str, timer: Timer, due_ms: int) -> None:
        """Let a timer run out then, or later if that was said before."""
        self.set(member_id, timer, max(due_ms, self._due.get((member_id, timer), due_ms)))

    def set_if_absent(self, member_id: str, timer: Timer, due_ms: int) -> None:
        """Let a timer run out then unless it runs already."""
        if (member_id, timer) not in self._due:
            self.set(member_id, timer, due_ms)

    def cancel(self, member_id: str, timer: Timer) -> None:
        """Stop a timer, if it runs."""
        if self._due.pop((member_id, timer), None) is not None:
            self._order.forget((member_id, timer))

    def forget(self, member_id: str) -> None:
        """The member is gone."""
        for timer in Timer:
            self.cancel(member_id, timer)

    def due(self, member_id: str, timer: Timer) -> int | None:
        """When a timer runs out; None if it does not run."""
        return self._due.get((member_id, timer))

    def first(self) -> int | None:
        """When something has to be looked at, or earlier."""
        return self._order.first()

    def pop_due(self, now_ms: int) -> list[tuple[str, Timer]]:
        """The timers that have run out. Each stays until it is set, cancelled or its member forgotten."""
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
