"""The records of one side of a join of two streams in one task: found by key and time, removed when they expire.

A record is an entry of a store, under its key, its timestamp and a number: records of one key and timestamp are all
kept. It expires when the stream time of its side has passed its timestamp by the retention time. Then it is joined no
more. A record that has expired when it comes is not kept.

What is here is an index of the store (`timed_store`): timestamps by key, and all of them in order. Source: WindowStore
of Kafka Streams with `retainDuplicates`; keys are those of its WindowKeySchema.
"""

from __future__ import annotations

import heapq
import struct
from bisect import bisect_left, bisect_right, insort
from functools import partial
from typing import Final

from anabranch.clients.streams.timed_store import MarkedStore, TimedStore

_SUFFIX: Final = struct.Struct(">qI")
SUFFIX_BYTES: Final = _SUFFIX.size
"""What a store's key has behind the record's key."""
_Place = tuple[int, int]
"""The timestamp of a record, and its number among those of its key and timestamp."""


class JoinWindowStore(TimedStore):
    """The records of one side in one task. Its stream time is the highest timestamp of this side."""

    def __init__(self, store: MarkedStore, partition: int, retention_ms: int) -> None:
        super().__init__(store, partition)
        self._retention_ms = retention_ms
        self._by_key: dict[bytes, list[_Place]] = {}
        self._expiring: list[tuple[int, bytes, int]] = []

    def load(self) -> None:
        """Read stream time and records from the store: the task starts to run."""
        super().load()
        self._by_key, self._expiring = {}, []
        for store_key, _ in self._store.items():
            timestamp_ms, number = _SUFFIX.unpack(store_key[-SUFFIX_BYTES:])
            self._expiring.append((timestamp_ms, store_key[:-SUFFIX_BYTES], number))
        heapq.heapify(self._expiring)
        for timestamp_ms, key, number in sorted(self._expiring):
            self._by_key.setdefault(key, []).append((timestamp_ms, number))

    def put(self, key: bytes, value: bytes, timestamp_ms: int) -> bool:
        """Keep a record, if it has not expired, and remove those that have; return whether it is kept."""
        self.observe(timestamp_ms)
        self._remove_expired()
        if self._is_expired(timestamp_ms):
            return False
        places = self._by_key.setdefault(key, [])
        end = bisect_right(places, timestamp_ms, key=lambda place: place[0])
        number = places[end - 1][1] + 1 if end and places[end - 1][0] == timestamp_ms else 0
        self._index(timestamp_ms, key, number)
        self._later_undo(partial(self._take_from_key, timestamp_ms, key, number))
        self._store.put(key + _SUFFIX.pack(timestamp_ms, number), value)
        return True

    def fetch(self, key: bytes, from_ms: int, to_ms: int) -> list[tuple[int, bytes]]:
        """Return the timestamps and values of a key's records from `from_ms` to `to_ms`, oldest first."""
        places = self._by_key.get(key, [])
        begin, end = bisect_left(places, (from_ms, 0)), bisect_left(places, (to_ms + 1, 0))
        found = []
        for timestamp_ms, number in places[begin:end]:
            if not self._is_expired(timestamp_ms):
                value = self._store.get(key + _SUFFIX.pack(timestamp_ms, number))
                if value is not None:
                    found.append((timestamp_ms, value))
        return found

    def _remove_expired(self) -> None:
        while self._expiring and self._is_expired(self._expiring[0][0]):
            timestamp_ms, key, number = heapq.heappop(self._expiring)
            if self._take_from_key(timestamp_ms, key, number):
                self._later_undo(partial(self._index, timestamp_ms, key, number))
                self._store.put(key + _SUFFIX.pack(timestamp_ms, number), None)

    def _is_expired(self, timestamp_ms: int) -> bool:
        return timestamp_ms <= self.stream_time_ms - self._retention_ms

    def _index(self, timestamp_ms: int, key: bytes, number: int) -> None:
        insort(self._by_key.setdefault(key, []), (timestamp_ms, number))
        heapq.heappush(self._expiring, (timestamp_ms, key, number))

    def _take_from_key(self, timestamp_ms: int, key: bytes, number: int) -> bool:
        """Remove a record from the index of its key; return whether it was there."""
        places = self._by_key.get(key, [])
        at = bisect_left(places, (timestamp_ms, number))
        if at == len(places) or places[at] != (timestamp_ms, number):
            return False
        del places[at]
        if not places:
            del self._by_key[key]
        return True
