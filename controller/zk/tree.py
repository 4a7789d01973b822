"""The data of the in-process and of the built-in ZooKeeper: a tree of znodes that changes by one transaction at a time.

Transactions are numbered by zxid. A failed one leaves no changes (every step has an undo), and a successful one lists
its changes, in order, for the watches. This module has no sessions, no watches and no clock: its owner sets `now_ms`.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import TypeVar, assert_never

from anabranch.controller.zk import paths
from anabranch.controller.zk.session import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Set,
    Stat,
    WatchEvent,
    ZkError,
)
from anabranch.protocol.values import slotted

T = TypeVar("T")


@slotted
class Znode:
    """One znode. `created` counts the children it ever had: the next sequence suffix."""

    data: bytes
    czxid: int
    mzxid: int
    owner: int = 0
    version: int = 0
    created: int = 0
    children: list[str] = field(default_factory=list)
    """Sorted, as clients receive them: reads are more frequent than changes."""
    pzxid: int = 0
    """The transaction that last created or deleted a child, or else this znode."""
    ctime_ms: int = 0
    mtime_ms: int = 0

    def stat(self) -> Stat:
        """Return the znode's stat for clients."""
        return Stat(self.czxid, self.mzxid, self.version, self.owner, len(self.children))

    def add_child(self, name: str) -> None:
        """Add the name of a child."""
        place = bisect.bisect_left(self.children, name)
        if self.children[place : place + 1] != [name]:
            self.children.insert(place, name)

    def remove_child(self, name: str) -> None:
        """Remove the name of a child."""
        place = bisect.bisect_left(self.children, name)
        if self.children[place : place + 1] == [name]:
            del self.children[place]


class ZnodeTree:
    """The data: nodes by path, changed by one transaction at a time, which can be undone while it runs."""

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0)}
        self.now_ms = 0
        """The time of the next changes, in milliseconds since the epoch; 0 where no client can see it."""
        self.changes: list[WatchEvent] = []
        self._undo: list[Callable[[], object]] = []

    def transact(self, apply: Callable[[], T]) -> tuple[T, list[WatchEvent]]:
        """Run one transaction: all of its changes, or none and its error."""
        self.zxid += 1
        self.changes, self._undo = [], []
        try:
            result = apply()
        except ZkError:
            self.undo()
            raise
        return result, self.changes

    def undo(self) -> None:
        """Take the changes of the last transaction back."""
        for undo in reversed(self._undo):
            undo()
        self._undo = []

    def node(self, path: str) -> Znode:
        """Return the node. Raises NoNode."""
        try:
            return self.nodes[path]
        except KeyError:
            raise NoNode(path) from None

    def create(self, path: str, data: bytes, *, owner: int, sequence: bool = False) -> str:
        """Create a node under an existing, non-ephemeral parent."""
        up = self.node_of_parent(path)
        if sequence:
            path = f"{path}{up.created:010d}"
        if path in self.nodes:
            raise NodeExists(path)
        if up.owner:
            raise NoChildrenForEphemerals(path)
        self.nodes[path] = Znode(
            data, self.zxid, self.zxid, owner, pzxid=self.zxid, ctime_ms=self.now_ms, mtime_ms=self.now_ms
        )
        self._undo += [partial(self.nodes.pop, path), partial(up.remove_child, paths.name(path))]
        self._undo += [partial(setattr, up, "created", up.created), partial(setattr, up, "pzxid", up.pzxid)]
        up.add_child(paths.name(path))
        up.created += 1
        up.pzxid = self.zxid
        self.changes += [WatchEvent(path, "created"), WatchEvent(paths.parent(path), "children")]
        return path

    def create_parents(self, path: str) -> None:
        """Create missing parents of the path, non-ephemeral and empty."""
        up = paths.parent(path)
        if up not in self.nodes:
            self.create_parents(up)
            self.create(up, b"", owner=0)

    def node_of_parent(self, path: str) -> Znode:
        """Return the parent of a path to be created; the error names the path."""
        up = self.nodes.get(paths.parent(path))
        if up is None:
            raise NoNode(path)
        return up

    def check(self, path: str, version: int) -> Znode:
        """Return the node if it has the version."""
        node = self.node(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def set(self, path: str, data: bytes, version: int) -> Stat:
        """Replace the data."""
        node = self.check(path, version)
        for name in ("data", "mzxid", "version", "mtime_ms"):
            self._undo.append(partial(setattr, node, name, getattr(node, name)))
        node.data, node.mzxid, node.version, node.mtime_ms = data, self.zxid, node.version + 1, self.now_ms
        self.changes.append(WatchEvent(path, "changed"))
        return node.stat()

    def delete(self, path: str, version: int) -> None:
        """Delete a childless node."""
        node = self.check(path, version)
        if node.children:
            raise NotEmpty(path)
        up = self.nodes[paths.parent(path)]
        del self.nodes[path]
        up.remove_child(paths.name(path))
        self._undo += [partial(self.nodes.__setitem__, path, node), partial(up.add_child, paths.name(path))]
        self._undo.append(partial(setattr, up, "pzxid", up.pzxid))
        up.pzxid = self.zxid
        self.changes += [WatchEvent(path, "deleted"), WatchEvent(paths.parent(path), "children")]

    def owned_by(self, session_id: int) -> list[str]:
        """Return the ephemerals of a session."""
        return sorted(path for path, node in self.nodes.items() if node.owner == session_id)

    def perform(self, owner: int, ops: Sequence[Op]) -> list[str | Stat | None]:
        """Execute the operations of a multi; the error has the index of the failed one."""
        answers: list[str | Stat | None] = []
        for index, op in enumerate(ops):
            try:
                answers.append(self.perform_one(owner, op))
            except ZkError as error:
                error.index = index
                raise
        return answers

    def perform_one(self, owner: int, op: Op) -> str | Stat | None:
        """Execute one operation: path of a Create, stat of a Set, None of a Delete or Check."""
        match op:
            case Create():
                return self.create(op.path, op.data, owner=owner if op.ephemeral else 0, sequence=op.sequence)
            case Set():
                return self.set(op.path, op.data, op.version)
            case Delete():
                self.delete(op.path, op.version)
            case Check():
                self.check(op.path, op.version)
            case _:
                assert_never(op)
        return None
