"""Packs tables of numbers into bytes, without an object per row: the audit's values in Spark's state store.

magic, length of the directory, directory (JSON: name, dtype and bytes of each column, and whatever is small), columns
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]

_HEAD: Final = struct.Struct(">4sI")
_MAGIC: Final = b"AUD5"


class ForeignState(ValueError):
    """State of another version of the audit, which cannot be continued."""


def pack(columns: Mapping[str, Column], small: Any) -> bytes:
    """Pack columns of plain numbers, and a small JSON value."""
    directory = [(name, column.dtype.str, column.nbytes) for name, column in columns.items()]
    head = json.dumps({"columns": directory, "small": small}, separators=(",", ":")).encode()
    return b"".join(
        [_HEAD.pack(_MAGIC, len(head)), head, *(np.ascontiguousarray(column).data for column in columns.values())]
    )


def unpack(data: bytes) -> tuple[dict[str, Column], Any]:
    """Unpack the columns, as read-only views of `data`, and the small value. Raises ForeignState."""
    if data[:4] != _MAGIC:
        raise ForeignState("the state of the audit has another version: start again in another directory")
    _, length = _HEAD.unpack_from(data)
    head = json.loads(data[_HEAD.size : _HEAD.size + length])
    position, columns = _HEAD.size + length, {}
    for name, dtype, size in head["columns"]:
        columns[name] = np.frombuffer(data, dtype, size // np.dtype(dtype).itemsize, position)
        position += size
    return columns, head["small"]


class Ragged:
    """Rows of numbers under some keys. Few keys have any, so the rows stay packed until one of their keys is read."""

    def __init__(self, keys: Column, rows: Column) -> None:
        """Create a table; `keys` ascending, one per row; rows of a key are adjacent."""
        self._keys = keys
        self._rows = rows
        self._changed: dict[int, Sequence[tuple[int, ...]]] = {}

    @classmethod
    def empty(cls, width: int) -> Ragged:
        """Return a table without rows."""
        return cls(np.zeros(0, np.uint64), np.zeros((0, width), np.int64))

    def get(self, key: int) -> Sequence[tuple[int, ...]]:
        """Return the rows of a key."""
        changed = self._changed.get(key)
        if changed is not None:
            return changed
        begin = int(np.searchsorted(self._keys, np.uint64(key), side="left"))
        end = int(np.searchsorted(self._keys, np.uint64(key), side="right"))
        return [tuple(row) for row in self._rows[begin:end].tolist()]

    def put(self, key: int, rows: Sequence[tuple[int, ...]]) -> None:
        """Replace the rows of a key."""
        self._changed[key] = rows

    def columns(self) -> tuple[Column, Column]:
        """Return keys and rows, with all changes."""
        if self._changed:
            changed = np.fromiter(self._changed, np.uint64, len(self._changed))
            kept = ~np.isin(self._keys, changed)
            fresh = [(key, row) for key, rows in self._changed.items() for row in rows]
            keys = np.concatenate([self._keys[kept], np.array([key for key, _ in fresh], np.uint64)])
            width = self._rows.shape[1]
            added = np.array([row for _, row in fresh], np.int64).reshape(-1, width)
            rows = np.concatenate([self._rows[kept], added])
            order = np.argsort(keys, kind="stable")
            self._keys, self._rows = keys[order], rows[order]
            self._changed = {}
        return self._keys, self._rows

    def has(self, keys: Column) -> npt.NDArray[np.bool_]:
        """Return which of these keys have rows."""
        return np.isin(keys, self.columns()[0])

    def items(self) -> list[tuple[int, tuple[int, ...]]]:
        """Return all rows."""
        keys, rows = self.columns()
        return list(zip(keys.tolist(), map(tuple, rows.tolist()), strict=True))
