"""The state of a cluster as rows by key, and the changes since the last query. Pure.

A key begins with its kind: `node/2`, `topic/orders`, `partition/orders/0`. A page keeps the same rows, and applies each
`StateDelta`; so does a `History`, for past states.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

NOTHING: Final = object()


@dataclass(slots=True)
class StateDelta:
    """The changes from one state to a later one."""

    put: dict[str, Any] = field(default_factory=dict)
    gone: dict[str, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.put or self.gone)

    def add(self, later: StateDelta) -> None:
        """Append a later change."""
        for key in later.gone:
            self.put.pop(key, None)
            self.gone[key] = None
        for key, row in later.put.items():
            self.gone.pop(key, None)
            self.put[key] = row

    def apply(self, rows: dict[str, Any]) -> None:
        """Apply the changes to rows."""
        for key in self.gone:
            rows.pop(key, None)
        rows.update(self.put)

    def body(self) -> dict[str, Any]:
        """The changes as a JSON object."""
        return {"put": self.put, "gone": list(self.gone)}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> StateDelta:
        """Decode the result of `body`."""
        return cls(body["put"], dict.fromkeys(body["gone"]))


class StateSheet:
    """Rows, and their changes since the last `take`. Rows must not be modified after `put`."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self._kinds: dict[str, dict[str, None]] = {}
        self._delta = StateDelta()

    def put(self, key: str, row: Any) -> None:
        """Set a row."""
        if self.rows.get(key, NOTHING) == row:
            return
        self.rows[key] = row
        self._kinds.setdefault(kind_of(key), {})[key] = None
        self._delta.put[key] = row
        self._delta.gone.pop(key, None)

    def drop(self, key: str) -> None:
        """Remove a row."""
        if self.rows.pop(key, NOTHING) is NOTHING:
            return
        del self._kinds[kind_of(key)][key]
        self._delta.put.pop(key, None)
        self._delta.gone[key] = None

    def keep(self, kind: str, keys: Collection[str]) -> None:
        """Remove all rows of this kind except these."""
        for key in [one for one in self._kinds.get(kind, ()) if one not in keys]:
            self.drop(key)

    def take(self) -> StateDelta:
        """Return the changes since the last call."""
        delta, self._delta = self._delta, StateDelta()
        return delta


def kind_of(key: str) -> str:
    """The kind of a row."""
    return key.partition("/")[0]
