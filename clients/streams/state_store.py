"""A task's store: uncommitted changes in memory over the data on disk.

It keeps the changes of the current record, so that a failed record can be undone.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final

from anabranch.clients.streams.changelog import Checkpoint
from anabranch.clients.streams.task_disk import TaskDisk


class _Unchanged(enum.Enum):
    """The marker of a key without a change since the last commit."""

    UNCHANGED = 0


_UNCHANGED: Final = _Unchanged.UNCHANGED
_Before = bytes | _Unchanged | None


class StateStore:
    """One store of one task: uncommitted changes in memory over the data on disk."""

    __slots__ = (
        "_disk",
        "_undo",
        "changes",
        "checkpoint",
        "cut_off",
        "doubted",
        "log_marks",
        "marks",
        "name",
        "topic_id",
    )

    def __init__(self, name: str, disk: TaskDisk) -> None:
        self.name = name
        self._disk = disk
        self.changes: dict[bytes, bytes | None] = {}
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
        self._undo: dict[bytes, _Before] | None = None
        """The changes of the current record, if they may have to be undone."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if there is none."""
        if key in self.changes:
            return self.changes[key]
        return self._disk.get(self.name, key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set or delete a key."""
        if self._undo is not None and key not in self._undo:
            self._undo[key] = self.changes.get(key, _UNCHANGED)
        self.changes[key] = value

    def begin(self) -> None:
        """Record changes from now on, for `undo`."""
        self._undo = {}

    def undo(self) -> None:
        """Undo the changes since `begin`."""
        for key, before in (self._undo or {}).items():
            if isinstance(before, _Unchanged):
                del self.changes[key]
            else:
                self.changes[key] = before

    def keep(self) -> None:
        """Keep the changes since `begin`."""
        self._undo = None

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all entries, unordered; those put meanwhile may be missing."""
        changes = dict(self.changes)
        for key, value in self._disk.items(self.name):
            if key not in changes:
                yield key, value
        for key, changed in changes.items():
            if changed is not None:
                yield key, changed
