"""The records of both sides of a left or outer join in one task that have not been joined, until their window closes.

A record is an entry of a store, under its key, its timestamp, its side and a number: records of one key and timestamp
are all kept. The first record that it is joined with removes it. If none comes, it is taken once, when the stream time
of both sides has passed the end of its window and the grace period.

As in Kafka Streams, a record looks for closed windows only if the window of `_min_time_ms` has closed. That is the
timestamp at which the last search ended, or that of an older record which came since. So some are taken later than
their windows close, together with others.

What is here is an index of the store (`timed_store`): the records of each side, by time. Source: the outer join store
and TimeTracker of Kafka Streams' KStreamKStreamJoin.
"""

from __future__ import annotations

import heapq
import struct
from bisect import bisect_left, bisect_right, insort
from functools import partial
from typing import Final, NamedTuple

from anabranch.clients.streams.timed_store import MarkedStore, TimedStore

_SUFFIX: Final = struct.Struct(">q?I")
SUFFIX_BYTES: Final = _SUFFIX.size
"""What a store's key has behind the record's key."""


class Unjoined(NamedTuple):
    """A record that has not been joined; the order is that in which they are taken."""

    timestamp_ms: int
    is_left: bool
    key: bytes
    number: int = 0
    """Its number among the records of its key, timestamp and side."""

    @property
    def store_key(self) -> bytes:
        """Its key in a store."""
        return self.key + _SUFFIX.pack(self.timestamp_ms, self.is_left, self.number)

    @classmethod
    def of_store_key(cls, store_key: bytes) -> Unjoined:
        """Return the record of a key in a store."""
        timestamp_ms, is_left, number = _SUFFIX.unpack(store_key[-SUFFIX_BYTES:])
        return cls(timestamp_ms, is_left, store_key[:-SUFFIX_BYTES], number)


class OuterJoinStore(TimedStore):
    """The records of both sides that have not been joined. Its stream time is the highest timestamp of both."""

    def __init__(self, store: MarkedStore, partition: int, open_ms: tuple[int, int]) -> None:
        super().__init__(store, partition)
        self._open_ms = open_ms
        """How long after its timestamp the window of a record is open: of the right side, of the left side."""
        self._sides: tuple[list[Unjoined], list[Unjoined]] = ([], [])
        self._min_time_ms: int | None = None

    def load(self) -> None:
        """Read stream time and records from the store: the task starts to run."""
        super().load()
        self._sides = ([], [])
        for store_key, _ in self._store.items():
            one = Unjoined.of_store_key(store_key)
            self._sides[one.is_left].append(one)
        for side in self._sides:
            side.sort()
        self._min_time_ms = min((side[0].timestamp_ms for side in self._sides if side), default=None)

    def put(self, key: bytes, value: bytes, timestamp_ms: int, *, is_left: bool) -> None:
        """Keep a record that has not been joined."""
        side = self._sides[is_left]
        same = self._same(key, timestamp_ms, is_left)
        one = Unjoined(timestamp_ms, is_left, key, same[-1].number + 1 if same else 0)
        insort(side, one)
        self._later_undo(partial(side.remove, one))
        if self._min_time_ms is None or timestamp_ms < self._min_time_ms:
            self._set_min_time(timestamp_ms)
        self._store.put(one.store_key, value)

    def remove(self, key: bytes, timestamp_ms: int, *, is_left: bool) -> None:
        """Remove the records of a key, timestamp and side: they are joined."""
        side = self._sides[is_left]
        for one in self._same(key, timestamp_ms, is_left):
            side.remove(one)
            self._later_undo(partial(insort, side, one))
            self._store.put(one.store_key, None)

    def take_closed(self, *, is_left: bool) -> list[tuple[Unjoined, bytes]]:
        """Remove the records whose windows are closed, when a record of a side comes; return them and their values."""
        stream_time_ms = self.stream_time_ms
        if self._min_time_ms is None or self._min_time_ms + self._open_ms[is_left] >= stream_time_ms:
            return []
        closed: list[list[Unjoined]] = []
        opened: list[Unjoined] = []
        for side, open_ms in zip(self._sides, self._open_ms, strict=True):
            first_open = bisect_left(side, (stream_time_ms - open_ms,))
            closed.append(side[:first_open])
            opened += side[first_open : first_open + 1]
        self._set_min_time(self._search_end(opened))
        taken = []
        for side, gone in zip(self._sides, closed, strict=True):
            del side[: len(gone)]
            self._later_undo(partial(side.__setitem__, slice(0, 0), gone))
        for one in heapq.merge(*closed):
            if (value := self._store.get(one.store_key)) is not None:
                self._store.put(one.store_key, None)
                taken.append((one, value))
        return taken

    def _search_end(self, opened: list[Unjoined]) -> int | None:
        """Return where Kafka Streams ends its search: one record behind the first open one of each side."""
        if len(opened) < len(self._sides):
            return max((side[-1].timestamp_ms for side in self._sides if side), default=None)
        last = max(opened)
        behind = [side[at] for side in self._sides if (at := bisect_right(side, last)) < len(side)]
        return min(behind, default=last).timestamp_ms

    def _same(self, key: bytes, timestamp_ms: int, is_left: bool) -> list[Unjoined]:
        """Return the records of a key, timestamp and side, by number."""
        side = self._sides[is_left]
        begin = end = bisect_left(side, (timestamp_ms, is_left, key))
        while end < len(side) and side[end][:3] == (timestamp_ms, is_left, key):
            end += 1
        return side[begin:end]

    def _set_min_time(self, timestamp_ms: int | None) -> None:
        self._later_undo(partial(setattr, self, "_min_time_ms", self._min_time_ms))
        self._min_time_ms = timestamp_ms
