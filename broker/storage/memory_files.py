"""The in-memory adapter of the interface in `files`, for clusters without persistent data.

A file is a list of blocks: appends to one growing bytearray would copy the whole file again and again. Flushes have no
effect.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

from anabranch.broker.storage.files import APPEND, FLUSH, BeforeWrite, Buffer, File

SMALL_BYTES: Final = 8_192
"""Appends smaller than this extend the last block, so that small batches share an object."""
BLOCK_BYTES: Final = 32_768
"""A block of this size is not extended: the copy would be too large."""


class MemoryFile:
    """A file as a list of blocks and their end positions."""

    __slots__ = ("_blocks", "_ends", "_files", "size_bytes")

    def __init__(self, files: MemoryFiles, content: bytes = b"") -> None:
        self._files = files
        self._blocks: list[bytearray] = []
        self._ends: list[int] = []
        self.size_bytes = 0
        if content:
            self._blocks.append(bytearray(content))
            self._ends.append(len(content))
            self.size_bytes = len(content)

    def append(self, *chunks: Buffer) -> None:
        """See `File`."""
        if self._files.before_write is not None:
            self._files.before_write(APPEND)
        added_bytes = sum(map(len, chunks))
        if not added_bytes:
            return
        self.size_bytes += added_bytes
        if added_bytes < SMALL_BYTES and self._blocks and len(last := self._blocks[-1]) < BLOCK_BYTES:
            for chunk in chunks:
                last += chunk
            self._ends[-1] = self.size_bytes
        else:
            self._blocks.append(bytearray().join(chunks))
            self._ends.append(self.size_bytes)

    def read(self, position: int, size_bytes: int) -> bytes:
        """See `File`. Only the requested bytes are copied, once."""
        end = min(position + size_bytes, self.size_bytes)
        if position >= end:
            return b""
        first = bisect_right(self._ends, position)
        block, block_end = self._blocks[first], self._ends[first]
        start = position - block_end + len(block)
        with memoryview(block) as view:
            if end <= block_end:
                return bytes(view[start : start + end - position])
            last = bisect_right(self._ends, end - 1, first)
            with memoryview(self._blocks[last]) as last_view:
                stop = end - self._ends[last] + len(last_view)
                return b"".join((view[start:], *self._blocks[first + 1 : last], last_view[:stop]))

    def truncate(self, size_bytes: int) -> None:
        """See `File`."""
        if size_bytes >= self.size_bytes:
            return
        kept = bisect_right(self._ends, size_bytes)  # number of blocks that end at or before the new size
        cut = self._ends[kept] - size_bytes
        del self._blocks[kept + 1 :], self._ends[kept + 1 :]
        del self._blocks[kept][-cut:]
        self._ends[kept] = self.size_bytes = size_bytes
        if not self._blocks[kept]:
            del self._blocks[kept], self._ends[kept]

    def flush(self) -> None:
        """Do nothing except call `before_write`."""
        if self._files.before_write is not None:
            self._files.before_write(FLUSH)

    def close(self) -> None:
        """Do nothing: there is no descriptor."""

    def drop(self) -> None:
        """Free the content of a removed file, which other objects may still refer to."""
        self._blocks, self._ends = [], []
        self.size_bytes = 0


class MemoryFiles:
    """A file system in memory: some hundred bytes per file, and nothing to start or clean up.

    Args:
        contents: The initial files, in the form that `contents` returns.
    """

    def __init__(self, contents: Mapping[str, bytes] | None = None) -> None:
        self.before_write: BeforeWrite | None = None
        self._directories: dict[str, dict[str, MemoryFile | None]] = {"": {}}  # None stands for a directory
        for path, content in (contents or {}).items():
            self.make_directory(path.rpartition("/")[0])
            if not path.endswith("/"):
                self.write_file(path, content)

    def contents(self) -> dict[str, bytes]:
        """Return a copy of all files: path -> content; the path of an empty directory ends in "/"."""
        found = {f"{directory}/": b"" for directory, names in self._directories.items() if directory and not names}
        for directory, names in self._directories.items():
            for name, file in names.items():
                if file is not None:
                    found[f"{directory}/{name}" if directory else name] = file.read(0, file.size_bytes)
        return found

    def open(self, path: str) -> File:
        """See `Files`."""
        names, name = self._entry(path)
        file = names.get(name)
        if file is None:
            file = self._put(names, path, MemoryFile(self))
        return file

    def names(self, directory: str) -> list[str]:
        """See `Files`."""
        return sorted(self._directories.get(directory, ()))

    def exists(self, path: str) -> bool:
        """See `Files`."""
        directory, _, name = path.rpartition("/")
        return path in self._directories or name in self._directories.get(directory, ())

    def make_directory(self, directory: str) -> None:
        """See `Files`."""
        if directory in self._directories:
            return
        parent, _, name = directory.rpartition("/")
        self.make_directory(parent)
        if name in self._directories[parent]:
            raise FileExistsError(directory)
        self._directories[parent][name] = None
        self._directories[directory] = {}

    def read_file(self, path: str) -> bytes | None:
        """See `Files`."""
        directory, _, name = path.rpartition("/")
        file = self._directories.get(directory, {}).get(name)
        return None if file is None else file.read(0, file.size_bytes)

    def write_file(self, path: str, content: bytes, *, flushed: bool = False) -> None:
        """See `Files`."""
        names, _ = self._entry(path)
        if self.before_write is not None:
            self.before_write(APPEND)
            if flushed:
                self.before_write(FLUSH)
        self._put(names, path, MemoryFile(self, content))

    def flush_file(self, path: str) -> None:
        """See `Files`."""
        if not self.exists(path):
            raise FileNotFoundError(path)
        if self.before_write is not None:
            self.before_write(FLUSH)

    def flush_directory(self, directory: str) -> None:
        """See `Files`."""
        if self.before_write is not None:
            self.before_write(FLUSH)

    def remove(self, path: str) -> None:
        """See `Files`."""
        directory, _, name = path.rpartition("/")
        names = self._directories.get(directory, {})
        file = names.get(name)
        if file is not None:
            file.drop()
            del names[name]

    def remove_directory(self, directory: str) -> None:
        """See `Files`."""
        if directory in self._directories:
            for path in self._with_inside(directory):
                for file in self._directories.pop(path).values():
                    if file is not None:
                        file.drop()
            parent, _, name = directory.rpartition("/")
            del self._directories[parent][name]

    def rename(self, source: str, target: str) -> None:
        """See `Files`."""
        names, name = self._entry(source)
        target_names, target_name = self._entry(target)
        if name not in names:
            raise FileNotFoundError(source)
        if target in self._directories:
            raise FileExistsError(target)
        target_names[target_name] = names.pop(name)
        for path in self._with_inside(source):
            self._directories[target + path[len(source) :]] = self._directories.pop(path)

    def space_bytes(self) -> tuple[int, int]:
        """Return total and free memory of the machine; -1 if unknown."""
        try:
            page_bytes = os.sysconf("SC_PAGE_SIZE")
            return os.sysconf("SC_PHYS_PAGES") * page_bytes, os.sysconf("SC_AVPHYS_PAGES") * page_bytes
        except (ValueError, OSError):  # macOS has no name for free pages
            return -1, -1

    def lock(self) -> None:
        """Do nothing: no other process can access these files."""

    def unlock(self) -> None:
        """See `lock`."""

    def _entry(self, path: str) -> tuple[dict[str, MemoryFile | None], str]:
        directory, _, name = path.rpartition("/")
        if directory not in self._directories:
            raise FileNotFoundError(path)
        return self._directories[directory], name

    def _put(self, names: dict[str, MemoryFile | None], path: str, file: MemoryFile) -> MemoryFile:
        if path in self._directories:
            raise IsADirectoryError(path)
        names[path.rpartition("/")[2]] = file
        return file

    def _with_inside(self, directory: str) -> list[str]:
        """Return a directory and all directories below it, top-down; a scan of all would be slow with thousands."""
        if directory not in self._directories:
            return []
        found = [directory]
        for path in found:
            inside = self._directories[path]
            found += [f"{path}/{name}" for name, file in inside.items() if file is None]
        return found
