"""What a power failure leaves of recorded operations: any state that POSIX allows a journaling file system to leave.

    a file        what it held when it was last flushed, and then a prefix of the later writes and truncations. The last
                  write may be cut anywhere, and the rest of its sector may hold zeros or garbage; or the file has its
                  new size, but zeros where nothing was flushed (delayed allocation).
    a directory   its names when it was last flushed, and then a prefix of the later changes of names. A flush of a file
                  does not flush its name.

Files and directories are independent of each other: a new name may be there without the content, and the content
without the name. This is the model of ALICE (Pillai et al., OSDI 2014) with ordered names in each directory, which
ext4, XFS and btrfs keep.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.power_loss.recording import Operation

SECTOR_BYTES: Final = 512
MODES: Final = ("nothing", "names", "contents", "mixed", "all but the last sector")
"""What is kept of the unflushed: nothing, all names, all contents, something of each, or nearly everything."""

Tree = dict[str, "bytes | Tree"]


@dataclass
class _File:
    flushed: bytes = b""
    pending: list[Operation] = field(default_factory=list)


@dataclass
class _Directory:
    flushed: dict[str, int] = field(default_factory=dict)
    pending: list[Operation] = field(default_factory=list)


class Disk:
    """The files below one directory, and what of them is flushed."""

    def __init__(self, content: Tree | None = None) -> None:
        self._files: dict[int, _File] = {}
        self._directories: dict[int, _Directory] = {0: _Directory()}
        self._next = 1
        self._fill(0, content or {})

    def _fill(self, number: int, content: Tree) -> None:
        """Number what is there from the start in the order of `recording.record`."""
        found: list[tuple[tuple[str, ...], str, int, bytes | Tree]] = []
        parents = {(): 0}

        def walk(path: tuple[str, ...], tree: Tree) -> None:
            for name, one in tree.items():
                found.append((path, name, 0, one))
                if isinstance(one, dict):
                    walk((*path, name), one)

        walk((), content)
        for path, name, _, one in sorted(found, key=lambda row: (*row[0], row[1])):
            inode, self._next = self._next, self._next + 1
            self._directories[parents[path]].flushed[name] = inode
            if isinstance(one, dict):
                parents[*path, name] = inode
                self._directories[inode] = _Directory()
            else:
                self._files[inode] = _File(one)

    def apply(self, operation: Operation) -> None:
        """Carry out one operation in the page cache, or flush."""
        match operation.kind:
            case "write" | "truncate":
                self._files[operation.inode].pending.append(operation)
            case "sync":
                file = self._files[operation.inode]
                file.flushed, file.pending = _written(file.flushed, file.pending), []
            case "syncdir":
                directory = self._directories[operation.directory]
                directory.flushed, directory.pending = _named(directory.flushed, directory.pending), []
            case _:
                if operation.kind == "create":
                    self._files[operation.inode] = _File()
                elif operation.kind == "mkdir":
                    self._directories[operation.inode] = _Directory()
                self._directories[operation.directory].pending.append(operation)

    def after_power_loss(self, rng: random.Random, mode: str) -> Tree:
        """Draw one of the states that a power failure may leave."""
        return self._tree(0, rng, mode)

    def cached(self) -> Tree:
        """What is in the page cache: all of it."""
        return self._tree(0, None, "")

    def _tree(self, number: int, rng: random.Random | None, mode: str) -> Tree:
        directory = self._directories[number]
        kept = len(directory.pending)
        if rng is not None and kept:
            kept = {"nothing": 0, "contents": 0, "mixed": rng.randint(0, kept)}.get(mode, kept)
        found: Tree = {}
        for name, inode in _named(directory.flushed, directory.pending[:kept]).items():
            if inode in self._directories:
                found[name] = self._tree(inode, rng, mode)
            else:
                file = self._files[inode]
                found[name] = _written(file.flushed, file.pending) if rng is None else _lose(file, rng, mode)
        return found


def _written(content: bytes, operations: Sequence[Operation]) -> bytes:
    if not operations:
        return content
    result = bytearray(content)
    for one in operations:
        if one.kind == "truncate":
            del result[one.position :]
        else:
            result.extend(bytes(max(0, one.position - len(result))))
            result[one.position : one.position + len(one.data)] = one.data
    return bytes(result)


def _named(names: dict[str, int], operations: Sequence[Operation]) -> dict[str, int]:
    result = dict(names)
    for one in operations:
        if one.kind == "remove":
            result.pop(one.name, None)
        elif one.kind == "rename":
            result[one.new_name] = result.pop(one.name)
        else:
            result[one.name] = one.inode
    return result


def _lose(file: _File, rng: random.Random, mode: str) -> bytes:
    pending = file.pending
    if not pending or mode == "nothing":
        return file.flushed
    if mode == "names":  # the size may be there before the content
        size = len(_written(file.flushed, pending))
        return file.flushed if rng.random() < 0.5 else file.flushed[:size].ljust(size, b"\0")
    if mode == "contents":
        return _written(file.flushed, pending)
    kept = len(pending) if mode != "mixed" else rng.randint(0, len(pending))
    content = _written(file.flushed, pending[:kept])
    last = pending[kept - 1] if kept else None
    if last is None or last.kind != "write" or not last.data or (mode == "mixed" and rng.random() < 0.3):
        return content
    if not last.position and len(last.data) <= SECTOR_BYTES:  # a sector that is written once is there, or is not
        return rng.choice((content, b"", bytes(len(content))))
    whole = _written(file.flushed, pending[: kept - 1])
    cut = last.position + rng.randrange(len(last.data))
    torn = last.data[: cut - last.position]
    rest = min(-cut % SECTOR_BYTES or SECTOR_BYTES, last.position + len(last.data) - cut)
    torn += rng.choice((b"", bytes(rest), rng.randbytes(rest)))
    return _written(whole, [Operation("write", position=last.position, data=torn)])


def materialize(tree: Tree, root: Path) -> None:
    """Write the files below an existing, empty directory."""
    for name, one in tree.items():
        path = root / name
        if isinstance(one, dict):
            path.mkdir()
            materialize(one, path)
        else:
            path.write_bytes(one)


def stored(root: Path) -> Tree:
    """Read the files below a directory."""
    return {
        path.name: stored(path) if path.is_dir() else path.read_bytes()
        for path in sorted(root.iterdir())
        if path.name != ".lock"
    }


def check_complete(operations: Sequence[Operation], before: Tree, root: Path) -> None:
    """Raise AssertionError if something has changed files without being recorded."""
    disk = Disk(before)
    for operation in operations:
        disk.apply(operation)
    assert disk.cached() == stored(root), "files were changed past the recorded calls"


def crashes(operations: Sequence[Operation], before: Tree) -> Iterator[tuple[int, Disk]]:
    """Yield the disk before the first operation and after each, with the number of operations so far."""
    disk = Disk(before)
    yield 0, disk
    for number, operation in enumerate(operations, 1):
        disk.apply(operation)
        yield number, disk
