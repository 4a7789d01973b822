"""The deadlines of many keys, for one timer.

`set` may move a deadline either way. Moving it later does not touch the heap, so heartbeats are cheap: a wake-up at the
old time finds nothing due and sets the deadline again.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import field
from typing import Generic, TypeVar

from anabranch.protocol.values import slotted

Key = TypeVar("Key", bound=Hashable)


@slotted
class Deadlines(Generic[Key]):
    """Keys with their deadlines."""

    _heap: list[tuple[int, int, Key]] = field(default_factory=list)
    _armed: dict[Key, int] = field(default_factory=dict)
    """The earliest heap entry of each key; later duplicates are skipped."""
    _sequence: int = 0

    def set(self, key: Key, due_ms: int | None) -> None:
        """Set the deadline of `key`, unless it has an earlier one; None changes nothing."""
        if due_ms is None or self._armed.get(key, due_ms + 1) <= due_ms:
            return
        self._armed[key] = due_ms
        self._sequence += 1  # a tie-breaker, since keys need not be comparable
        heapq.heappush(self._heap, (due_ms, self._sequence, key))

    def first(self) -> int | None:
        """Return the earliest deadline."""
        while self._heap and self._armed.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> list[Key]:
        """Remove and return the keys whose deadline has passed."""
        due = []
        while (first := self.first()) is not None and first <= now_ms:
            key = heapq.heappop(self._heap)[2]
            del self._armed[key]
            due.append(key)
        return due

    def forget(self, key: Key) -> None:
        """Remove the deadline of `key`."""
        self._armed.pop(key, None)
