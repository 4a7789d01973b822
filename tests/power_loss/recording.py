"""Records what a process does to the files of a directory, call by call, while it really does it.

`record` replaces the calls of `os` that change files or flush them. What they change below its root becomes a list of
`Operation`: that list is what a kernel had in its page cache, in order. `disk` makes of it the files that a power
failure leaves. A change that goes past these calls would be a hole: `disk.check_complete` compares the end of the list
with the files that there really are.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Operation:
    """One change or flush. `directory` and `inode` are numbers; a path may name another one later."""

    kind: str
    """write, truncate, sync; create, mkdir, rename, remove, syncdir."""
    inode: int = 0
    directory: int = 0
    name: str = ""
    new_name: str = ""
    position: int = 0
    data: bytes = b""


@dataclass
class Recorder:
    """The operations below a root, and which inode each path and each descriptor is."""

    root: Path
    operations: list[Operation] = field(default_factory=list)
    inodes: dict[str, int] = field(default_factory=dict)
    """Of files and of directories, by path; the root is 0."""
    descriptors: dict[int, int] = field(default_factory=dict)
    appending: set[int] = field(default_factory=set)
    next_inode: int = 1

    def __post_init__(self) -> None:
        self.inodes[str(self.root)] = 0

    def path(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path as text if it is below the root."""
        if isinstance(path, int):
            return None
        given = Path(os.fspath(path))
        if dir_fd is not None:
            given = Path(f"/proc/self/fd/{dir_fd}").readlink() / given
        text = str(given.absolute())
        if text.endswith("/.lock"):
            return None
        return text if text == str(self.root) or text.startswith(f"{self.root}/") else None

    def add(self, kind: str, path: str = "", **fields: Any) -> None:
        """Note an operation; `path` is the name that it changes."""
        if path:
            directory, _, name = path.rpartition("/")
            fields |= {"directory": self.inodes[directory], "name": name}
        self.operations.append(Operation(kind, **fields))

    def make(self, kind: str, path: str) -> None:
        """A file or directory is created."""
        self.inodes[path] = self.next_inode
        self.next_inode += 1
        self.add(kind, path, inode=self.inodes[path])

    def move(self, source: str, target: str) -> None:
        """A file or directory gets another name in the same directory."""
        assert source.rpartition("/")[0] == target.rpartition("/")[0], "a rename into another directory"
        self.add("rename", source, new_name=target.rpartition("/")[2])
        for path in [one for one in self.inodes if one == target or one.startswith(f"{target}/")]:
            del self.inodes[path]
        for path in [one for one in self.inodes if one == source or one.startswith(f"{source}/")]:
            self.inodes[target + path[len(source) :]] = self.inodes.pop(path)

    def drop(self, path: str) -> None:
        """A file or an empty directory is removed."""
        self.add("remove", path)
        del self.inodes[path]


class _Calls:
    """The replaced calls of `os`."""

    def __init__(self, recorder: Recorder, real: dict[str, Callable[..., Any]]) -> None:
        self._recorder = recorder
        self._real = real

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        recorder = self._recorder
        known = recorder.path(path, dir_fd)
        missing = known is not None and not os.path.lexists(known)
        descriptor: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        if known is None:
            return descriptor
        if missing:
            recorder.make("create", known)
        recorder.descriptors[descriptor] = recorder.inodes[known]
        if flags & os.O_APPEND:
            recorder.appending.add(descriptor)
        if flags & os.O_TRUNC and not missing:
            recorder.add("truncate", inode=recorder.inodes[known])
        return descriptor

    def close(self, descriptor: int) -> None:
        self._recorder.descriptors.pop(descriptor, None)
        self._recorder.appending.discard(descriptor)
        self._real["close"](descriptor)

    def write(self, descriptor: int, data: Any) -> int:
        end = os.fstat(descriptor).st_size
        at = end if descriptor in self._recorder.appending else os.lseek(descriptor, 0, os.SEEK_CUR)
        written: int = self._real["write"](descriptor, data)
        self._note_write(descriptor, bytes(data)[:written], at)
        return written

    def pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        written: int = self._real["pwrite"](descriptor, data, offset)
        self._note_write(descriptor, bytes(data)[:written], offset)
        return written

    def pwritev(self, descriptor: int, buffers: Any, offset: int) -> int:
        written: int = self._real["pwritev"](descriptor, buffers, offset)
        self._note_write(descriptor, b"".join(map(bytes, buffers))[:written], offset)
        return written

    def _note_write(self, descriptor: int, data: bytes, position: int) -> None:
        inode = self._recorder.descriptors.get(descriptor)
        if inode is not None:
            self._recorder.add("write", inode=inode, position=position, data=data)

    def ftruncate(self, descriptor: int, length: int) -> None:
        self._real["ftruncate"](descriptor, length)
        inode = self._recorder.descriptors.get(descriptor)
        if inode is not None:
            self._recorder.add("truncate", inode=inode, position=length)

    def fsync(self, descriptor: int) -> None:
        self._real["fsync"](descriptor)
        inode = self._recorder.descriptors.get(descriptor)
        if inode is not None:
            directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            self._recorder.add("syncdir" if directory else "sync", inode=inode, directory=inode if directory else 0)

    def fdatasync(self, descriptor: int) -> None:
        self.fsync(descriptor)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._real["mkdir"](path, mode, dir_fd=dir_fd)
        known = self._recorder.path(path, dir_fd)
        if known is not None and known != str(self._recorder.root):
            self._recorder.make("mkdir", known)

    def rename(self, src: Any, dst: Any, **options: Any) -> None:
        self._real["rename"](src, dst, **options)
        source, target = self._recorder.path(src), self._recorder.path(dst)
        assert (source is None) == (target is None)
        if source is not None and target is not None:
            self._recorder.move(source, target)

    def replace(self, src: Any, dst: Any, **options: Any) -> None:
        self.rename(src, dst, **options)

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        known = self._recorder.path(path, dir_fd)
        self._real["unlink"](path, dir_fd=dir_fd)
        if known is not None:
            self._recorder.drop(known)

    def remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        self.unlink(path, dir_fd=dir_fd)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        known = self._recorder.path(path, dir_fd)
        self._real["rmdir"](path, dir_fd=dir_fd)
        if known is not None:
            self._recorder.drop(known)


REPLACED: Final = tuple(name for name in vars(_Calls) if not name.startswith("_"))


@contextlib.contextmanager
def record(root: Path) -> Iterator[Recorder]:
    """Record what this process does below `root`, an existing directory whose present content is on the disk."""
    recorder = Recorder(root)
    for path in sorted(root.rglob("*")):
        if path.name != ".lock":
            recorder.inodes[str(path)] = recorder.next_inode
            recorder.next_inode += 1
    real = {name: getattr(os, name) for name in REPLACED}
    calls = _Calls(recorder, real)
    for name in REPLACED:
        setattr(os, name, getattr(calls, name))
    try:
        yield recorder
    finally:
        for name, call in real.items():
            setattr(os, name, call)
