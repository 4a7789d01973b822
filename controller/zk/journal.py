"""A tree of znodes with a file: every transaction is appended to it before a client gets the outcome.

One line per changed znode: its path and, unless it is deleted or ephemeral, its whole content. Reading the lines in
order restores the tree, with versions and transaction numbers continuing, so that no broker or leader epoch is ever
reused. The data survives a killed process; replication protects against a lost machine. Opening the file rewrites it,
one line per znode, so it does not grow over restarts; its directory is locked before, for as long as it is open.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Final, TypeVar

from anabranch.clients.directory_lock import DirectoryLock
from anabranch.controller.zk import paths
from anabranch.controller.zk.session import WatchEvent
from anabranch.controller.zk.tree import Znode, ZnodeTree

T = TypeVar("T")
STEP_CHARS: Final = 1 << 20
STEP_LINE_CHARS: Final = 500
"""A line's fixed cost, in characters."""


class JournaledTree(ZnodeTree):
    """A persistent `ZnodeTree`."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        path = Path(path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = DirectoryLock(path.parent)
        try:
            if path.exists():
                restored = read(path.read_text())
                self.nodes, self.zxid = restored.nodes, restored.zxid
            fresh = path.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            fresh.touch(mode=0o600, exist_ok=False)  # it holds SCRAM credentials and tokens
            fresh.write_text(to_lines(self))
            fresh.replace(path)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        except BaseException:
            self._lock.release()
            raise

    def transact(self, apply: Callable[[], T]) -> tuple[T, list[WatchEvent]]:
        """Run one transaction, and append it to the file."""
        result, changes = super().transact(apply)
        changed = dict.fromkeys(change.path for change in changes if change.path is not None)
        self._append("".join(line(self, one) for one in changed).encode())
        return result, changes

    def _append(self, lines: bytes) -> None:
        """Write all of the lines, or none of them and raise OSError: a full disk takes a part first."""
        written = 0
        try:
            while written < len(lines):
                written += os.write(self._file, lines[written:] if written else lines)
        except OSError:
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise

    def close(self) -> None:
        """Close the file; the tree must not be changed any more."""
        os.close(self._file)
        self._lock.release()


def to_lines(tree: ZnodeTree, only: Iterable[str] | None = None) -> str:
    """Return the lines of a whole tree, or of these paths; an ephemeral counts as deleted."""
    return "".join(line(tree, one) for one in sorted(tree.nodes if only is None else only))


def line(tree: ZnodeTree, path: str) -> str:
    """Return the current line of a path; an ephemeral counts as deleted, because it does not outlive the process."""
    node = tree.nodes.get(path)
    row: list[object] = [tree.zxid, path]
    if node is not None and not node.owner:
        row += [node.data.decode("latin-1"), node.czxid, node.mzxid, node.version, node.created]
        row += [node.pzxid, node.ctime_ms, node.mtime_ms]
    return json.dumps(row, separators=(",", ":")) + "\n"


def read(text: str) -> ZnodeTree:
    """Restore the tree from the lines. An incomplete last line of a killed process is ignored."""
    steps = reading(text)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            tree: ZnodeTree = end.value
            return tree


def reading(text: str) -> Generator[None, None, ZnodeTree]:
    """Restore the tree in steps of some milliseconds, between which other tasks run."""
    tree = ZnodeTree()
    start = 0
    since = 0
    while (end := text.find("\n", start)) >= 0:
        row = text[start:end]
        since += STEP_LINE_CHARS + len(row)
        if since > STEP_CHARS:
            since = 0
            yield
        start = end + 1
        zxid, path, *rest = json.loads(row)
        tree.zxid = max(tree.zxid, zxid)
        parent = tree.nodes.get(paths.parent(path))
        if rest:
            data, czxid, mzxid, version, created, *more = rest
            old = tree.nodes.get(path)
            children = old.children if old is not None else []
            tree.nodes[path] = Znode(data.encode("latin-1"), czxid, mzxid, 0, version, created, children, *more)
            if parent is not None and path != "/":
                parent.add_child(paths.name(path))
        elif tree.nodes.pop(path, None) is not None and parent is not None:
            parent.remove_child(paths.name(path))
    return tree
