"""The sliding windows of one step in one task: found by key and start, and kept for a while after they have closed.

A window that has closed changes no more, but open windows are made of it (`sliding_aggregation`). So it is removed when
stream time is past `SlidingWindows.kept_until_ms`. If results are forwarded when windows close, a window whose result
has been is marked: its timestamp is written as the complement, which is negative. So a window that comes from a lagging
partition, and is closed by the stream time here, still has its result, and no window has a second one.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from functools import partial
from typing import NamedTuple

from anabranch.clients.streams.timed_store import MarkedStore
from anabranch.clients.streams.window_store import Closing, WindowStore, row
from anabranch.clients.streams.windows import SlidingWindows, Windowed


class KeptWindow(NamedTuple):
    """A window of a key: its start, its aggregate, and the highest timestamp of its records."""

    start_ms: int
    value: bytes
    newest_ms: int


class SlidingWindowStore(WindowStore):
    """The sliding windows of one step in one task."""

    windows: SlidingWindows

    def __init__(
        self, store: MarkedStore, partition: int, windows: SlidingWindows, *, results_at_close: bool = False
    ) -> None:
        super().__init__(store, partition, windows)
        self._results_at_close = results_at_close
        self._starts: dict[bytes, list[int]] = {}
        """The starts of a key's windows, in order."""

    def load(self) -> None:
        """Read stream time and windows from the store: the task starts to run."""
        self._starts = {}
        super().load()

    def starting(self, key: bytes, from_ms: int, to_ms: int) -> list[KeptWindow]:
        """Return the windows of a key that start within these times, the last one first."""
        starts, found = self._starts.get(key, []), []
        for start_ms in reversed(starts[bisect_left(starts, from_ms) : bisect_right(starts, to_ms)]):
            stored = self.get(self.windows.starting(key, start_ms))
            if stored is not None:
                value, newest_ms = stored
                found.append(KeptWindow(start_ms, value, newest_ms if newest_ms >= 0 else ~newest_ms))
        return found

    def take_closed(self) -> tuple[Windowed, bytes, int] | None:
        """Return the first window that has closed, with its value and timestamp; None if none has.

        If results are forwarded when windows close, it is returned then and removed later. Otherwise both happen later.
        """
        while self._closing and self._closing[0][0] <= self.stream_time_ms:
            entry = heapq.heappop(self._closing)
            self._later_undo(partial(heapq.heappush, self._closing, entry))
            due_ms, start_ms, store_key = entry
            window = self.windows.window_of(store_key)
            if (stored := self.get(window)) is None:
                self._drop_from_key(window)  # it moved away, or the record that made it failed
                continue
            value, newest_ms = stored
            kept_until_ms = self.windows.kept_until_ms(window)
            if due_ms >= kept_until_ms:
                self.remove(window)
            else:
                heapq.heappush(self._closing, (kept_until_ms, start_ms, store_key))
                if newest_ms >= 0:
                    self._store.put(store_key, row(value, ~newest_ms))
            if newest_ms >= 0:
                return window, value, newest_ms
        return None

    def _index(self, window: Windowed, store_key: bytes) -> Closing:
        self._add_to_key(window)
        due_ms = (self.windows.closes_at_ms if self._results_at_close else self.windows.kept_until_ms)(window)
        return due_ms, window.start_ms, store_key

    def _drop_from_key(self, window: Windowed) -> None:
        """Remove a window from the index of its key, and a key without windows."""
        starts = self._starts.get(window.key, [])
        at = bisect_left(starts, window.start_ms)
        if at < len(starts) and starts[at] == window.start_ms:
            del starts[at]
            if not starts:
                del self._starts[window.key]
            self._later_undo(partial(self._add_to_key, window))

    def _add_to_key(self, window: Windowed) -> None:
        starts = self._starts.setdefault(window.key, [])
        at = bisect_left(starts, window.start_ms)
        if at == len(starts) or starts[at] != window.start_ms:
            insort(starts, window.start_ms)
