"""What a cluster is like, as rows by key, and what has changed of it since somebody last asked. Pure.

A key begins with its kind: `node/2`, `topic/orders`, `partition/orders/0`. A page keeps the same rows, and each
`StateDelta` takes it to the next state; so does a `History`, to any state of before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

NOTHING: Final = object()


@dataclass(slots=True)
class StateDelta:
    """What leads from one state to a later one."""

    put: dict[str, Any] = field(default_factory=dict)
    gone: dict[str, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.put or self.gone)

    def add(self, later: StateDelta) -> None:
        """Lead to where a later one leads."""
        for key in later.gone:
            self.put.pop(key, None)
            self.gone[key] = None
        for key, row in later.put.items():
            self.gone.pop(key, None)
            self.put[key] = row

    def apply(self, rows: dict[str, Any]) -> None:
        """Bring rows to the later state."""
        for key in self.gone:
            rows.pop(key, None)
        rows.update(self.put)

    def body(self) -> dict[str, Any]:
        """For a program."""
        return {"put": self.put, "gone": list(self.gone)}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> StateDelta:
        """What `body` has told."""
        return cls(body["put"], dict.fromkeys(body["gone"]))


class StateSheet:
    """Rows, and what has changed of them since the last `take`. A row that was put is not changed any more."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self._kinds: dict[str, dict[str, None]] = {}
        self._delta = StateDelta()

    def put(self, key: str, row: Any) -> None:
        """A row is so."""
        if self.rows.get(key, NOTHING) == row:
            return
        self.rows[key] = row
        self._kinds.setdefault(kind_of(key), {})[key] = None
        self._delta.put[key] = row
        self._delta.gone.pop(key, None)

    def drop(self, key: str) -> None:
        """A row is no more."""
        if self.rows.pop(key, NOTHING) is NOTHING:
            return
        del self._kinds[kind_of(key)][key]
        self._delta.put.pop(key, None)
        self._delta.gone[key] = None

    def keep(self, kind: str, keys: Collection[str]) -> None:
        """Of this kind there are only these."""
        for key in [one for one in self._kinds.get(kind, ()) if one not in keys]:
            self.drop(key)

    def take(self) -> StateDelta:
        """What has changed since the last time."""
        delta, self._delta = self._delta, StateDelta()
        return delta


def kind_of(key: str) -> str:
    """What a row is about."""
    return key.partition("/")[0]
