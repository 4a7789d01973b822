"""A task's store: uncommitted changes in memory over the data on disk.

It keeps the changes of the current record, so that a failed record can be undone.

A row is what memory and disk have of a key: its value, in a *timestamped* store behind the timestamp of its newest
record. In the changelog the value is alone, and the timestamp is that of the changelog's record: as Kafka Streams has
it (ValueAndTimestamp, RecordConverters).
"""

from __future__ import annotations

import enum
import struct
from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import takewhile
from typing import Final

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.changelog import Checkpoint
from anabranch.clients.streams.serdes import check_bytes
from anabranch.clients.streams.task_disk import TaskDisk


class _Unchanged(enum.Enum):
    """The marker of a key without a change since the last commit."""

    UNCHANGED = 0


_UNCHANGED: Final = _Unchanged.UNCHANGED
_Before = bytes | _Unchanged | None
_TIMESTAMP: Final = struct.Struct(">q")
NO_TIMESTAMP: Final = -1


class StateStore:
    """One store of one task: uncommitted changes in memory over the data on disk."""

    __slots__ = (
        "_disk",
        "_outer",
        "_sorted",
        "_undo",
        "changes",
        "checkpoint",
        "cut_off",
        "doubted",
        "log_marks",
        "marks",
        "name",
        "timestamped",
        "topic_id",
    )

    def __init__(self, name: str, disk: TaskDisk, *, timestamped: bool = False) -> None:
        self.name = name
        self.timestamped = timestamped
        self._disk = disk
        self.changes: dict[bytes, bytes | None] = {}
        """The rows that have changed since the last commit; None for a deleted key."""
        self.checkpoint = Checkpoint(disk.checkpoint(name))
        self.marks = disk.marks(name)
        self.topic_id = disk.topic_id(name)
        """The topic id of the changelog from which it was restored; empty while unknown."""
        self.doubted = False
        """Whether its changelog lacks the checkpoint's offset, or seems to be another topic."""
        self.cut_off = False
        """Whether its changelog has lost its first records, possibly with marks."""
        self.log_marks = False
        """Whether its marks have to be written to the changelog again."""
        self._sorted: list[bytes] | None = None
        """The keys of `changes` in order, once `prefix_scan` needs them."""
        self._undo: dict[bytes, _Before] | None = None
        """The changes of the current record, or of a part of it, if they may have to be undone."""
        self._outer: list[dict[bytes, _Before]] = []
        """The changes of the record before that part, and of the parts around it."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if there is none."""
        row = self._row(key)
        return row[_TIMESTAMP.size :] if self.timestamped and row is not None else row

    def get_timestamped(self, key: bytes) -> tuple[bytes, int] | None:
        """Return the value of a key in a timestamped store, and its timestamp; None if there is none."""
        row = self._row(key)
        return None if row is None else (row[_TIMESTAMP.size :], int(_TIMESTAMP.unpack_from(row)[0]))

    def put(self, key: bytes, value: bytes | None, timestamp_ms: int = NO_TIMESTAMP) -> None:
        """Set or delete a key. A timestamped store keeps the timestamp. Raises TypeError if something is not bytes."""
        check_bytes(key, value, "store", self.name, keyed=True)
        if self._undo is not None and key not in self._undo:
            self._undo[key] = self.changes.get(key, _UNCHANGED)
        if self._sorted is not None and key not in self.changes:
            insort(self._sorted, key)
        timestamped = self.timestamped and value is not None
        self.changes[key] = _TIMESTAMP.pack(timestamp_ms) + (value or b"") if timestamped else value

    def _row(self, key: bytes) -> bytes | None:
        if key in self.changes:
            return self.changes[key]
        return self._disk.get(self.name, key)

    # the changelog

    def logged(self, row: bytes | None) -> tuple[bytes | None, int | None]:
        """Return the value and the timestamp of a row's record in the changelog; None for the time of sending."""
        if row is None or not self.timestamped:
            return row, None
        timestamp_ms = int(_TIMESTAMP.unpack_from(row)[0])
        return row[_TIMESTAMP.size :], None if timestamp_ms == NO_TIMESTAMP else timestamp_ms

    def row_of(self, record: ConsumerRecord) -> bytes | None:
        """Return the row of a record of the changelog."""
        if record.value is None or not self.timestamped:
            return record.value
        return _TIMESTAMP.pack(record.timestamp) + record.value

    def begin(self) -> None:
        """Record changes from now on, for `undo`."""
        self._undo, self._outer = {}, []

    def undo(self) -> None:
        """Undo the changes since `begin`."""
        self._sorted = None
        for key, before in (self._undo or {}).items():
            if isinstance(before, _Unchanged):
                del self.changes[key]
            else:
                self.changes[key] = before

    def keep(self) -> None:
        """Keep the changes since `begin`."""
        self._undo = None

    def begin_part(self) -> None:
        """Record the changes of a part of the record, for `undo_part`."""
        self._outer.append({} if self._undo is None else self._undo)
        self._undo = {}

    def undo_part(self) -> None:
        """Undo the changes since the last `begin_part`."""
        self.undo()
        self._undo = self._outer.pop()

    def keep_part(self) -> None:
        """Keep the changes since the last `begin_part`; `undo` still undoes them."""
        part, self._undo = self._undo or {}, self._outer.pop()
        for key, before in part.items():
            self._undo.setdefault(key, before)

    def drop_changes(self) -> None:
        """Forget the changes since the last commit: they are on disk now, or aborted."""
        self.changes, self._sorted = {}, None

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that begin with a prefix, with their values, by key; those put meanwhile may be missing."""
        if self._sorted is None:
            self._sorted = sorted(self.changes)
        stored = self._disk.range(self.name, prefix)
        rows: dict[bytes, bytes | None] = dict(takewhile(lambda one: one[0].startswith(prefix), stored))
        for at in range(bisect_left(self._sorted, prefix), len(self._sorted)):
            key = self._sorted[at]
            if not key.startswith(prefix):
                break
            rows[key] = self.changes[key]
        start = _TIMESTAMP.size if self.timestamped else 0
        return ((key, row[start:]) for key, row in sorted(rows.items()) if row is not None)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every key with its value, unordered; those put meanwhile may be missing."""
        start = _TIMESTAMP.size if self.timestamped else 0
        return ((key, row[start:]) for key, row in self.rows())

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every key with its row, unordered; those put meanwhile may be missing."""
        changes = dict(self.changes)
        for key, value in self._disk.items(self.name):
            if key not in changes:
                yield key, value
        for key, changed in changes.items():
            if changed is not None:
                yield key, changed
