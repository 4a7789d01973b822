"""The one-shot watches of a ZooKeeper in this process: each watcher is notified of the next change of its znode.

A watcher is any hashable object: the in-process ZooKeeper registers callbacks, the built-in server connections. The
same watcher is registered once for a path, and the order of registration is kept. Source: ZooKeeper's `WatchManager`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Generic, TypeVar

from anabranch.controller.zk.session import WatchEvent
from anabranch.protocol.values import slotted

W = TypeVar("W")


@slotted
class Watches(Generic[W]):
    """The watchers of one path. Dicts keep the order of registration, and each watcher at most once."""

    data: dict[W, None] = field(default_factory=dict)
    children: dict[W, None] = field(default_factory=dict)


class WatchManager(Generic[W]):
    """All watches by path."""

    def __init__(self) -> None:
        self._watches: dict[str, Watches[W]] = {}

    def watch_data(self, path: str, watcher: W) -> None:
        """Watch for the creation, change and deletion of a znode."""
        self._watches.setdefault(path, Watches()).data[watcher] = None

    def watch_children(self, path: str, watcher: W) -> None:
        """Watch for changes of the children of a znode, and its deletion."""
        self._watches.setdefault(path, Watches()).children[watcher] = None

    def trigger(self, change: WatchEvent) -> list[W]:
        """Remove and return the watchers of a change; one that watches data and children is there twice."""
        assert change.path is not None
        watches = self._watches.get(change.path)
        if watches is None:
            return []
        triggered: list[W] = []
        if change.kind != "children":
            triggered += watches.data
            watches.data.clear()
        if change.kind in ("children", "deleted"):
            triggered += watches.children
            watches.children.clear()
        if not watches.data and not watches.children:
            del self._watches[change.path]
        return triggered

    def remove(self, is_removed: Callable[[W], bool]) -> list[W]:
        """Remove and return some watchers."""
        removed = []
        for watches in self._watches.values():
            for table in (watches.children, watches.data):
                for watcher in [watcher for watcher in table if is_removed(watcher)]:
                    del table[watcher]
                    removed.append(watcher)
        self._watches = {path: watches for path, watches in self._watches.items() if watches.data or watches.children}
        return removed
