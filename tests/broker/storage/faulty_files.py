"""A file system that fails on request, over one that does not.

Unlike the disk of the simulation, which rolls dice about machines that lose power, this one does as it is told: it is
full, it fails to flush, it takes half a write, and the process dies at a chosen operation.
"""

from __future__ import annotations

import errno

from anabranch.broker.storage.files import Buffer, File, Files


class Crash(Exception):
    """The process has died; earlier writes remain."""


class FaultyFiles:
    """`Files` with switches."""

    def __init__(self, inner: Files) -> None:
        self.inner = inner
        self.full = False
        self.room_bytes: int | None = None
        """How much still fits, before the disk is full."""
        self.failing_flush = False
        self.torn = False
        """Leave a part of a refused append behind, as a disk does that fails while it is written to."""
        self.crash_after: int | None = None
        """How many more operations succeed."""
        self.flushed: list[str] = []

    def open(self, path: str) -> File:
        if not self.inner.exists(path):
            self.count(0)
        return FaultyFile(self, self.inner.open(path), path)

    def names(self, directory: str) -> list[str]:
        return self.inner.names(directory)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def make_directory(self, directory: str) -> None:
        if not self.inner.exists(directory):
            self.count(0)
        self.inner.make_directory(directory)

    def read_file(self, path: str) -> bytes | None:
        return self.inner.read_file(path)

    def write_file(self, path: str, content: bytes, *, flushed: bool = False) -> None:
        self.count(len(content))
        self.inner.write_file(path, content, flushed=flushed)

    def flush_file(self, path: str) -> None:
        self.count()
        self.flushed.append(path)
        self.inner.flush_file(path)

    def flush_directory(self, directory: str) -> None:
        self.count()
        self.flushed.append(directory)
        self.inner.flush_directory(directory)

    def remove(self, path: str) -> None:
        if self.inner.exists(path):
            self.count()
        self.inner.remove(path)

    def remove_directory(self, directory: str) -> None:
        self.count()
        self.inner.remove_directory(directory)

    def rename(self, source: str, target: str) -> None:
        self.count()
        self.inner.rename(source, target)

    def count(self, grows_bytes: int | None = None) -> None:
        """Count one operation, with the space that it needs."""
        if self.crash_after is not None:
            if self.crash_after <= 0:
                raise Crash
            self.crash_after -= 1
        if grows_bytes is None:
            return
        if self.full or (self.room_bytes is not None and self.room_bytes < grows_bytes):
            raise OSError(errno.ENOSPC, "no space left on device")
        if self.room_bytes is not None:
            self.room_bytes -= grows_bytes


class FaultyFile:
    """An open file of it."""

    def __init__(self, files: FaultyFiles, inner: File, path: str) -> None:
        self._files = files
        self._inner = inner
        self._path = path

    @property
    def size_bytes(self) -> int:  # type: ignore[override]
        return self._inner.size_bytes

    def append(self, *chunks: Buffer) -> None:
        data = b"".join(chunks)
        try:
            self._files.count(len(data))
        except (OSError, Crash) as reason:
            if self._files.torn:
                size_bytes = self._inner.size_bytes
                self._inner.append(data[: len(data) // 2])
                if isinstance(reason, OSError):
                    self._inner.truncate(size_bytes)
            raise
        self._inner.append(data)

    def read(self, position: int, size_bytes: int) -> bytes:
        return self._inner.read(position, size_bytes)

    def truncate(self, size_bytes: int) -> None:
        if size_bytes < self._inner.size_bytes:
            self._files.count()
        self._inner.truncate(size_bytes)

    def flush(self) -> None:
        if self._files.failing_flush:
            raise OSError(errno.EIO, "input/output error")
        self._files.count()
        self._files.flushed.append(self._path)
        self._inner.flush()

    def close(self) -> None:
        self._inner.close()
