"""The windows of one step in one task: their values, the stream time that closes them, and which of them are open.

Values and stream time are state. A window is an entry of a store, under the record's key and the window; the record's
key decides where it moves in a resize. The observed stream time is a mark of the store (`changelog.time_mark`), so that
a window which has closed stays closed after a crash or a rebalance. A task that takes over keys takes over the stream
time of their task, too: its own is the highest of these. Windows of a lagging partition that is merged may close by
that, as if all records had been in one partition from the beginning.

What is here is an index of the store: open windows by the time at which they close, and sessions by key. It is made
again when the task starts to run. An entry may be outdated; the store decides. Source: WindowStore and SessionStore of
Kafka Streams, which forgets stream time with each task.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from anabranch.clients.streams.changelog import observed_time, time_mark
from anabranch.clients.streams.windows import SessionWindows, Windowed, Windows

_TIMESTAMP: Final = struct.Struct(">q")


class MarkedStore(Protocol):
    """A `StateStore`: values by key, and the marks of its changelog."""

    marks: dict[bytes, bytes]

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if it has none."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set or delete a key."""

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return all entries, unordered."""


class WindowStore:
    """The windows of one step in one task."""

    def __init__(self, store: MarkedStore, partition: int, windows: Windows) -> None:
        self.windows = windows
        self.stream_time_ms = -1
        """The highest timestamp of the step's records."""
        self._store = store
        self._partition = partition
        self._closing: list[tuple[int, bytes]] = []
        self._by_key: dict[bytes, set[Windowed]] | None = {} if isinstance(windows, SessionWindows) else None
        self._undo: list[Callable[[], None]] | None = None

    def load(self) -> None:
        """Read stream time and open windows from the store: the task starts to run."""
        self.stream_time_ms = observed_time(self._store.marks)
        self._undo = None
        if self._by_key is not None:
            self._by_key = {}
        self._closing = [self._index(self.windows.window_of(key), key) for key, _ in self._store.items()]
        heapq.heapify(self._closing)

    def observe(self, timestamp_ms: int) -> int:
        """Advance stream time to a record's timestamp, if that is later; return stream time."""
        if timestamp_ms > self.stream_time_ms:
            self.stream_time_ms = timestamp_ms
        return self.stream_time_ms

    def note_time(self) -> None:
        """Put stream time among the marks of the store, to be committed with its changes."""
        if self.stream_time_ms >= 0:
            self._store.marks.update([time_mark(self._partition, self.stream_time_ms)])

    def get(self, window: Windowed) -> tuple[bytes, int] | None:
        """Return the value of a window and its timestamp, the highest of its records; None if it has none."""
        stored = self._store.get(self.windows.store_key(window))
        return None if stored is None else (stored[_TIMESTAMP.size :], int(_TIMESTAMP.unpack_from(stored)[0]))

    def put(self, window: Windowed, value: bytes, timestamp_ms: int) -> None:
        """Set the value of a window."""
        store_key = self.windows.store_key(window)
        if self._store.get(store_key) is None:
            heapq.heappush(self._closing, self._index(window, store_key))
        self._store.put(store_key, _TIMESTAMP.pack(timestamp_ms) + value)

    def remove(self, window: Windowed) -> None:
        """Remove a window."""
        self._store.put(self.windows.store_key(window), None)
        if self._by_key is not None and window in (known := self._by_key.get(window.key, set())):
            known.remove(window)
            self._later_undo(partial(known.add, window))

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
            window = self.windows.window_of(entry[1])
            if (stored := self.get(window)) is not None:
                self.remove(window)
                return window, *stored
        return None

    # a record that may fail

    def begin(self) -> None:
        """Record changes of the index from now on, for `undo`."""
        self._undo = []

    def undo(self) -> None:
        """Undo them, with the changes of the store."""
        for one in reversed(self._undo or ()):
            one()
        self._undo = None

    def _later_undo(self, action: Callable[[], None]) -> None:
        if self._undo is not None:
            self._undo.append(action)

    def _index(self, window: Windowed, store_key: bytes) -> tuple[int, bytes]:
        """Index a session by its key; return the entry of a window in `_closing`."""
        if self._by_key is not None:
            self._by_key.setdefault(window.key, set()).add(window)
        return self.windows.closes_at_ms(window), store_key
