"""The windows of one step in one task: their values, and which of them are open.

A window is an entry of a store, under the record's key and the window; the record's key decides where it moves in a
resize. Stream time closes windows (`timed_store`). Windows of a lagging partition that is merged may close by the
stream time of the other, as if all records had been in one partition from the beginning.

What is here is an index of the store: open windows by the time at which they close, and sessions by key. Source:
WindowStore and SessionStore of Kafka Streams.
"""

from __future__ import annotations

import heapq
import struct
from functools import partial
from typing import Final

from anabranch.clients.streams.timed_store import MarkedStore, TimedStore
from anabranch.clients.streams.windows import SessionWindows, Windowed, Windows

_TIMESTAMP: Final = struct.Struct(">q")
Closing = tuple[int, int, bytes]
"""The time at which a window closes, its start, and its key in the store: windows close in this order."""


def row(value: bytes, timestamp_ms: int) -> bytes:
    """Return the row of a window in a store."""
    return _TIMESTAMP.pack(timestamp_ms) + value


class WindowStore(TimedStore):
    """The windows of one step in one task."""

    def __init__(self, store: MarkedStore, partition: int, windows: Windows) -> None:
        super().__init__(store, partition)
        self.windows = windows
        self._closing: list[Closing] = []
        self._by_key: dict[bytes, set[Windowed]] | None = {} if isinstance(windows, SessionWindows) else None

    def load(self) -> None:
        """Read stream time and open windows from the store: the task starts to run."""
        super().load()
        if self._by_key is not None:
            self._by_key = {}
        self._closing = [self._index(self.windows.window_of(key), key) for key, _ in self._store.items()]
        heapq.heapify(self._closing)

    def get(self, window: Windowed) -> tuple[bytes, int] | None:
        """Return the value of a window and its timestamp, the highest of its records; None if it has none."""
        stored = self._store.get(self.windows.store_key(window))
        return None if stored is None else (stored[_TIMESTAMP.size :], int(_TIMESTAMP.unpack_from(stored)[0]))

    def put(self, window: Windowed, value: bytes, timestamp_ms: int) -> None:
        """Set the value of a window."""
        store_key = self.windows.store_key(window)
        if self._store.get(store_key) is None:
            heapq.heappush(self._closing, self._index(window, store_key))
        self._store.put(store_key, row(value, timestamp_ms))

    def remove(self, window: Windowed) -> None:
        """Remove a window."""
        self._store.put(self.windows.store_key(window), None)
        self._drop_from_key(window)

    def sessions(self, key: bytes, from_ms: int, to_ms: int) -> list[Windowed]:
        """Return the sessions of a key that end at `from_ms` or later and start at `to_ms` or earlier, by end."""
        assert self._by_key is not None, "only sessions are found by their key"
        near = [
            one
            for one in self._by_key.get(key, ())
            if one.end_ms >= from_ms and one.start_ms <= to_ms and self.get(one) is not None
        ]
        return sorted(near, key=lambda one: (one.end_ms, one.start_ms))

    def take_closed(self) -> tuple[Windowed, bytes, int] | None:
        """Remove the first window that is closed; return it with its value and timestamp. None if none is."""
        while self._closing and self._closing[0][0] <= self.stream_time_ms:
            entry = heapq.heappop(self._closing)
            self._later_undo(partial(heapq.heappush, self._closing, entry))
            window = self.windows.window_of(entry[2])
            if (stored := self.get(window)) is not None:
                self.remove(window)
                return window, *stored
            self._drop_from_key(window)  # it moved away, or the record that made it failed
        return None

    def _drop_from_key(self, window: Windowed) -> None:
        """Remove a session from the index of its key, and a key without sessions."""
        if self._by_key is None or window not in (known := self._by_key.get(window.key, set())):
            return
        known.remove(window)
        if not known:
            del self._by_key[window.key]
        self._later_undo(partial(self._add_to_key, window))

    def _add_to_key(self, window: Windowed) -> None:
        if self._by_key is not None:
            self._by_key.setdefault(window.key, set()).add(window)

    def _index(self, window: Windowed, store_key: bytes) -> Closing:
        """Index a session by its key; return the entry of a window in `_closing`."""
        self._add_to_key(window)
        return self.windows.closes_at_ms(window), window.start_ms, store_key
