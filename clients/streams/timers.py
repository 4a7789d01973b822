"""The timers of a task: for each key one time at which a function of the application is called.

A timer is an entry of a store, the key with its due time. So it is committed with the record that set it, survives a
crash, moves with its key through a resize, and is undone with a record that fails. What is here is an index of the
store by time. It is made again when the task starts to run, and may be too early for a key, never too late: the store
decides. Source: Punctuator of Kafka Streams, which forgets its schedules; timers that are state are our own.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable
from typing import Final

from anabranch.clients.streams.context import Clock, Store

Fire = Callable[[bytes, int], None]
"""Handles a due timer: its key and its due time in milliseconds."""
_DUE: Final = struct.Struct(">q")


class TaskTimers:
    """The timers of one name in one task; `Timers` is the part of it that steps use."""

    def __init__(self, store: Store, clock: Clock, fire: Fire) -> None:
        self.clock = clock
        self.fire = fire
        self._store = store
        self._heap: list[tuple[int, bytes]] = []
        self._indexed: dict[bytes, int] = {}
        """The entry of the heap that counts, for each key."""
        self._firing_ms: int | None = None
        self._deferred: list[tuple[int, bytes]] = []

    def set(self, key: bytes, due_ms: int) -> None:
        """Set the timer of a key, in place of an earlier one."""
        self._store.put(key, _DUE.pack(due_ms))
        if self._firing_ms is not None and due_ms <= self._firing_ms:
            self._deferred.append((due_ms, key))
        else:
            self._index(due_ms, key)

    def cancel(self, key: bytes) -> None:
        """Remove the timer of a key, if it has one."""
        self._store.put(key, None)

    def due_ms(self, key: bytes) -> int | None:
        """Return when the timer of a key is due; None if it has none."""
        stored = self._store.get(key)
        return None if stored is None else int(_DUE.unpack(stored)[0])

    def load(self) -> None:
        """Index the whole store: the task starts to run."""
        self._indexed = {key: _DUE.unpack(value)[0] for key, value in self._store.items()}
        self._heap = [(due_ms, key) for key, due_ms in self._indexed.items()]
        heapq.heapify(self._heap)
        self._firing_ms, self._deferred = None, []

    def take_due(self, now_ms: int) -> tuple[bytes, int] | None:
        """Remove the first timer that is due, and return its key and time; None if there is none.

        A timer that is set meanwhile for the same time, or an earlier one, is due in the next round, which begins after
        None: otherwise a round might never end.
        """
        while self._heap and self._heap[0][0] <= now_ms:
            indexed_ms, key = heapq.heappop(self._heap)
            if self._indexed.get(key) != indexed_ms:
                continue
            del self._indexed[key]
            due_ms = self.due_ms(key)
            if due_ms is None:
                continue
            if due_ms != indexed_ms:
                self._index(due_ms, key)
                continue
            self.cancel(key)
            self._firing_ms = due_ms
            return key, due_ms
        self._firing_ms = None
        for due_ms, key in self._deferred:
            self._index(due_ms, key)
        self._deferred = []
        return None

    def _index(self, due_ms: int, key: bytes) -> None:
        if due_ms < self._indexed.get(key, due_ms + 1):
            self._indexed[key] = due_ms
            heapq.heappush(self._heap, (due_ms, key))
