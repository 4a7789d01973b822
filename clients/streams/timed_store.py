"""The stream time of a step's store in one task, and the undo of the index that a class keeps of the store.

Stream time is the highest timestamp that the step has observed. It is state, as entries are: a mark of the store
(`changelog.time_mark`). So what it has closed stays closed after a crash or a rebalance. A task that takes over keys
takes over the stream time of their task, too: its own is the highest of these.

An index is made again when the task starts to run. An entry of it may be outdated, as a hand-over removes keys from the
store: the store decides. A record that fails and is skipped does not advance stream time. Source: stream time of Kafka
Streams, which forgets it with each task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from anabranch.clients.streams.changelog import observed_time, time_mark


class MarkedStore(Protocol):
    """A `StateStore`: values by key, and the marks of its changelog."""

    marks: dict[bytes, bytes]

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if it has none."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set or delete a key."""

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return all entries, unordered."""


class TimedStore:
    """A store with stream time: the base of those that keep an index by time."""

    def __init__(self, store: MarkedStore, partition: int) -> None:
        self.stream_time_ms = -1
        """The highest timestamp of the step's records."""
        self._store = store
        self._partition = partition
        self._undo: list[Callable[[], object]] | None = None
        self._time_before_ms = -1
        self._outer: list[tuple[list[Callable[[], object]], int]] = []
        """The same of the record before the part that may be undone, and of the parts around it."""

    def load(self) -> None:
        """Read stream time and the index from the store: the task starts to run."""
        self.stream_time_ms = observed_time(self._store.marks)
        self._undo = None

    def observe(self, timestamp_ms: int) -> int:
        """Advance stream time to a record's timestamp, if that is later; return stream time. Raises ValueError if the
        record has no timestamp: it is in no window, and Kafka Streams refuses it (FailOnInvalidTimestamp).
        """
        if timestamp_ms < 0:
            raise ValueError(f"its timestamp is {timestamp_ms}: a record without a time is in no window")
        if timestamp_ms > self.stream_time_ms:
            self.stream_time_ms = timestamp_ms
        return self.stream_time_ms

    def note_time(self) -> None:
        """Put stream time among the marks of the store, to be committed with its changes."""
        if self.stream_time_ms >= 0:
            self._store.marks.update([time_mark(self._partition, self.stream_time_ms)])

    # a record that may fail

    def begin(self) -> None:
        """Record changes of the index from now on, for `undo`."""
        self._undo, self._outer = [], []
        self._time_before_ms = self.stream_time_ms

    def undo(self) -> None:
        """Undo them, with the changes of the store, and set stream time back."""
        for one in reversed(self._undo or ()):
            one()
        if self._undo is not None:
            self.stream_time_ms = self._time_before_ms
        self._undo = None

    def begin_part(self) -> None:
        """Record the changes of a part of the record, for `undo_part`."""
        self._outer.append(([] if self._undo is None else self._undo, self._time_before_ms))
        self._undo, self._time_before_ms = [], self.stream_time_ms

    def undo_part(self) -> None:
        """Undo the changes since the last `begin_part`."""
        self.undo()
        self._undo, self._time_before_ms = self._outer.pop()

    def keep_part(self) -> None:
        """Keep the changes since the last `begin_part`; `undo` still undoes them."""
        part, (self._undo, self._time_before_ms) = self._undo or (), self._outer.pop()
        self._undo += part  # in place: a record may have many parts

    def _later_undo(self, action: Callable[[], object]) -> None:
        if self._undo is not None:
            self._undo.append(action)
