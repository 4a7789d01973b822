"""A tree of znodes with a file: every transaction is appended to it, and flushed, before a client gets the outcome.

One line per changed znode: its path and, unless it is deleted or ephemeral, its whole content. Another line ends the
transaction: its number, and a checksum of its lines. Reading the lines in order restores the tree, with versions and
transaction numbers continuing, so that no broker or leader epoch is ever reused. A power failure leaves all of a
transaction or nothing: what follows the last valid end is ignored. Valid transactions behind invalid lines mean that
the file is damaged; it is refused, as ZooKeeper refuses its own (`forceSync`, `FileTxnLog`).

Opening the file rewrites it, one line per znode, so it does not grow over restarts; its directory is locked before, for
as long as it is open. A text without any end of a transaction is that of a snapshot: all of its lines count.
"""

from __future__ import annotations

import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Final, TypeVar

from anabranch.clients.directory_lock import DirectoryLock
from anabranch.clients.durable_files import make_directory, replace_file, write_all
from anabranch.controller.zk import paths
from anabranch.controller.zk.session import WatchEvent
from anabranch.controller.zk.tree import Znode, ZnodeTree

log = logging.getLogger(__name__)

T = TypeVar("T")
END: Final = re.compile(rb"\[\d+,(\d+)\]\n")
"""The end of a transaction: its number, and the checksum of its lines."""
DAMAGE_ADVICE: Final = "its data cannot be trusted; restore a copy of the whole data directory"
STEP_CHARS: Final = 1 << 20
STEP_LINE_CHARS: Final = 500
"""A line's fixed cost, in characters."""


class JournaledTree(ZnodeTree):
    """A persistent `ZnodeTree`."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        path = Path(path)
        make_directory(str(path.parent), 0o700)
        self._lock = DirectoryLock(path.parent)
        try:
            if path.exists():
                restored = read(completed(path))
                self.nodes, self.zxid = restored.nodes, restored.zxid
            # It holds SCRAM credentials and tokens.
            content = transaction(self.zxid, to_lines(self))
            replace_file(str(path), content, mode=0o600)
            self._size_bytes = len(content)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except BaseException:
            self._lock.release()
            raise

    def transact(self, apply: Callable[[], T]) -> tuple[T, list[WatchEvent]]:
        """Run one transaction, append it to the file and flush it; after an OSError it has not happened."""
        result, changes = super().transact(apply)
        changed = dict.fromkeys(change.path for change in changes if change.path is not None)
        lines = "".join(line(self, one) for one in changed)
        if lines:
            self._append(transaction(self.zxid, lines))
        return result, changes

    def _append(self, content: bytes) -> None:
        try:
            write_all(self._file, content)
            os.fdatasync(self._file)
        except OSError:
            self.undo()
            os.ftruncate(self._file, self._size_bytes)
            raise
        self._size_bytes += len(content)

    def close(self) -> None:
        """Close the file; the tree must not be changed any more."""
        os.close(self._file)
        self._lock.release()


class JournalDamaged(OSError):
    """A journal has valid transactions behind invalid lines."""


def transaction(zxid: int, lines: str) -> bytes:
    """Return the lines of a transaction with its end."""
    content = lines.encode()
    return content + b"[%d,%d]\n" % (zxid, zlib.crc32(content))


def completed(path: Path) -> str:
    """Return the complete transactions of a journal; all of it if it has no end of one. Raises JournalDamaged."""
    content = path.read_bytes()
    valid = start = position = 0
    while (end := content.find(b"\n", position) + 1) > 0:
        found = END.fullmatch(content, position, end)
        if found is not None:
            if int(found[1]) == zlib.crc32(content[start:position]):
                if valid < start:
                    raise JournalDamaged(
                        f"{path} is damaged at byte {valid}, before valid transactions: {DAMAGE_ADVICE}"
                    )
                valid = end
            start = end
        position = end
    if not start:
        return content.decode()
    if not valid:
        raise JournalDamaged(f"{path} is damaged before byte {start}: {DAMAGE_ADVICE}")
    if valid < len(content):
        log.warning("%s: ignoring %d bytes of an incomplete transaction", path, len(content) - valid)
    return content[:valid].decode()


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
        if isinstance(path, int) and not rest:
            continue  # the end of a transaction
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
