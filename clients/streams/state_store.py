"""One store of one task in memory: what was changed since the last commit, over what is on disk.

Keeps what the record that is being processed has changed, so that a record that fails can be undone.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final

from anabranch.clients.streams.changelog import Checkpoint
from anabranch.clients.streams.task_disk import TaskDisk


class _Unchanged(enum.Enum):
    """Stands for the value of a key that was not changed since the last commit."""

    UNCHANGED = 0


_UNCHANGED: Final = _Unchanged.UNCHANGED
_Before = bytes | _Unchanged | None


class StateStore:
    """One store of one task: what was changed since the last commit, over what is on disk."""

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
        """The topic id of the changelog that it was restored from; empty while that is not known."""
        self.doubted = False
        """Whether its changelog has nothing at the checkpoint, or seems to be another topic."""
        self.cut_off = False
        """Whether its changelog has lost its first records, and maybe marks with them."""
        self.log_marks = False
        """Whether its marks have to be written to the changelog again."""
        self._undo: dict[bytes, _Before] | None = None
        """What the record that is being processed has changed, if that may have to be undone."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None if there is none."""
        if key in self.changes:
            return self.changes[key]
        return self._disk.get(self.name, key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set or delete a key."""
        if self._undo is not None and key not in self._undo:
            self._undo[key] = self.changes.get(key, _UNCHANGED)
        self.changes[key] = value

    def begin(self) -> None:
        """Note from now on what is changed, so that `undo` can take it back."""
        self._undo = {}

    def undo(self) -> None:
        """Take back what was changed since `begin`."""
        for key, before in (self._undo or {}).items():
            if isinstance(before, _Unchanged):
                del self.changes[key]
            else:
                self.changes[key] = before

    def keep(self) -> None:
        """Keep what was changed since `begin`."""
        self._undo = None

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Everything in it, in no order; what is put meanwhile may be missing."""
        changes = dict(self.changes)
        for key, value in self._disk.items(self.name):
            if key not in changes:
                yield key, value
        for key, changed in changes.items():
            if changed is not None:
                yield key, changed
