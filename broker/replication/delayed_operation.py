"""Delayed operations: requests that wait for a condition, such as a Produce for replication or a Fetch for bytes.

A delayed operation watches keys. Code that changes a key calls `check(key)`; the operation completes when its condition
holds or its deadline passes. There is no clock and no timer: the caller passes the time to `expire(now)`, and
`next_deadline` says when to call it next, so one timer serves all operations.

Invariant: `finish` is called exactly once, unless the operation was discarded before (its connection was lost). Source:
Kafka's `DelayedOperationPurgatory`, without its threads.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class DelayedOperation(Generic[Key]):
    """A waiting request. `ready(key)` is evaluated after a change of `key`; `finish()` resumes the request."""

    __slots__ = ("deadline", "done", "finish", "keys", "ready")

    def __init__(
        self, keys: Iterable[Key], deadline: float, ready: Callable[[Key], bool], finish: Callable[[], None]
    ) -> None:
        self.keys = list(keys)
        self.deadline = deadline
        self.ready = ready
        self.finish = finish
        self.done = False

    def clear(self) -> None:
        """Drop all references: the request may refer to this operation, and holds megabytes of records.

        A reference cycle would only be freed by the garbage collector.
        """
        self.keys = []
        self.ready = _never
        self.finish = _nothing


def _never(_: object) -> bool:
    return False


def _nothing() -> None:
    pass


class DelayedOperations(Generic[Key]):
    """All delayed operations of one kind, by key and by deadline."""

    def __init__(self) -> None:
        self._watchers: dict[Key, dict[DelayedOperation[Key], None]] = {}
        self._deadlines: list[tuple[float, int, DelayedOperation[Key]]] = []
        self._sequence = itertools.count()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def add(
        self, keys: Iterable[Key], deadline: float, ready: Callable[[Key], bool], finish: Callable[[], None]
    ) -> DelayedOperation[Key]:
        """Add an operation. The caller has checked that it is not ready, and nothing ran in between."""
        parked = DelayedOperation(keys, deadline, ready, finish)
        for key in parked.keys:
            self._watch(parked, key)
        heapq.heappush(self._deadlines, (deadline, next(self._sequence), parked))
        self._waiting += 1
        return parked

    def watch(self, parked: DelayedOperation[Key], key: Key) -> None:
        """Watch one more key with a waiting operation."""
        if not parked.done:
            parked.keys.append(key)
            self._watch(parked, key)

    def _watch(self, parked: DelayedOperation[Key], key: Key) -> None:
        watching = self._watchers.get(key)
        if watching is None:
            self._watchers[key] = {parked: None}
        else:
            watching[parked] = None

    def check(self, key: Key) -> int:
        """Finish the operations that the change of `key` made ready; return their number."""
        watching = self._watchers.get(key)
        if not watching:
            return 0
        ready = [parked for parked in watching if parked.ready(key)]
        for parked in ready:
            self._finish(parked)
        return len(ready)

    def expire(self, now: float) -> int:
        """Finish the operations whose deadline has passed; return their number."""
        expired = 0
        while self._deadlines and (self._deadlines[0][2].done or self._deadlines[0][0] <= now):
            parked = heapq.heappop(self._deadlines)[2]
            if not parked.done:
                self._finish(parked)
                expired += 1
        return expired

    def discard(self, parked: DelayedOperation[Key]) -> None:
        """Remove the operation of a lost client; no effect if it has finished."""
        if not parked.done:
            self._remove(parked)

    def finish(self, parked: DelayedOperation[Key]) -> None:
        """Finish an operation whatever its condition; no effect if it has finished."""
        self._finish(parked)

    def finish_all(self) -> None:
        """Finish every operation whatever its condition: the server is stopping."""
        for _, _, parked in self._deadlines:
            if not parked.done:
                self._finish(parked)

    @property
    def next_deadline(self) -> float | None:
        """Return the earliest time at which `expire` has something to do."""
        while self._deadlines and self._deadlines[0][2].done:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _finish(self, parked: DelayedOperation[Key]) -> None:
        if not parked.done:
            finish = parked.finish
            self._remove(parked)
            finish()

    def _remove(self, parked: DelayedOperation[Key]) -> None:
        parked.done = True
        self._waiting -= 1
        for key in parked.keys:
            watching = self._watchers.get(key)
            if watching is not None:
                watching.pop(parked, None)
                if not watching:
                    del self._watchers[key]
        parked.clear()
        # Most operations finish long before their deadline: keep the heap from growing by thousands of finished ones.
        if len(self._deadlines) > 64 and len(self._deadlines) > 4 * self._waiting:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
            heapq.heapify(self._deadlines)
