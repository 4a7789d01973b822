"""Many deadlines, one timer: which of many things is due first.

`set` may move a deadline either way. Moving it later costs nothing until the old time comes, so that the heartbeat path
does not touch the heap at all: a wake-up that finds nothing due simply asks again.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class Deadlines(Generic[Key]):
    """Keys and when each of them has to be looked at."""

    _heap: list[tuple[int, int, Key]] = field(default_factory=list)
    _armed: dict[Key, int] = field(default_factory=dict)
    """The earliest entry of a key in the heap; later duplicates are skipped."""
    _sequence: int = 0

    def set(self, key: Key, due_ms: int | None) -> None:
        """Look at `key` at `due_ms`, or earlier if that was asked before; None adds nothing."""
        if due_ms is None or self._armed.get(key, due_ms + 1) <= due_ms:
            return
        self._armed[key] = due_ms
        self._sequence += 1  # keys need not be comparable
        heapq.heappush(self._heap, (due_ms, self._sequence, key))

    def first(self) -> int | None:
        """When the next look is due."""
        while self._heap and self._armed.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> list[Key]:
        """The keys to look at now; the caller has to `set` each again that it wants to look at again."""
        due = []
        while (first := self.first()) is not None and first <= now_ms:
            key = heapq.heappop(self._heap)[2]
            del self._armed[key]
            due.append(key)
        return due

    def forget(self, key: Key) -> None:
        """Never look at `key` again."""
        self._armed.pop(key, None)
