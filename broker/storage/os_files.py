"""The on-disk adapter of the interface in `files`: a directory of the machine.

Descriptors stay open while files are in use, since a log directory may have thousands of files. Beyond a limit the
least recently used one is closed, and opened again when its file is needed.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from anabranch.broker.storage.files import APPEND, FLUSH, NO_ROOM, BeforeWrite, Buffer, File, Files
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.clients.directory_lock import DirectoryLock
from anabranch.clients.durable_files import flush_path, make_directory, replace_file
from anabranch.protocol.file_paths import path_below

log = logging.getLogger(__name__)

OPEN_DESCRIPTORS_MAX: Final = 512
"""The largest number of descriptors that `OsFiles` keeps open."""


class OsFile:
    """A file on disk. Its size is cached, because only this process appends to it."""

    __slots__ = ("_files", "path", "size_bytes")

    def __init__(self, files: OsFiles, path: str) -> None:
        self._files = files
        self.path = path
        self.size_bytes = os.fstat(files.descriptor(path)).st_size

    def append(self, *chunks: Buffer) -> None:
        """See `File`. If a full disk stores only part of the bytes, that part is truncated."""
        if self._files.before_write is not None:
            self._files.before_write(APPEND)
        descriptor = self._files.descriptor(self.path)
        expected = sum(len(chunk) for chunk in chunks)
        try:
            written = os.pwritev(descriptor, chunks, self.size_bytes)
            if written < expected:
                # The next write raises the reason; a short write without a reason continues.
                self._append_rest(descriptor, b"".join(chunks), written)
        except OSError as reason:
            os.ftruncate(descriptor, self.size_bytes)
            self._files.tell_of(reason)
            raise
        self.size_bytes += expected

    def _append_rest(self, descriptor: int, content: bytes, written: int) -> None:
        view = memoryview(content)
        while written < len(view):
            written += os.pwrite(descriptor, view[written:], self.size_bytes + written)

    def read(self, position: int, size_bytes: int) -> bytes:
        """See `File`."""
        return os.pread(self._files.descriptor(self.path), size_bytes, position)

    def truncate(self, size_bytes: int) -> None:
        """See `File`."""
        if size_bytes < self.size_bytes:
            os.ftruncate(self._files.descriptor(self.path), size_bytes)
            self.size_bytes = size_bytes

    def flush(self) -> None:
        """See `File`."""
        if self._files.before_write is not None:
            self._files.before_write(FLUSH)
        os.fdatasync(self._files.descriptor(self.path))

    def close(self) -> None:
        """See `File`."""
        self._files.close_descriptor(self.path)


class OsFiles:
    """A directory on disk, with a cache of open descriptors."""

    def __init__(self, root: Path | str, *, open_descriptors_max: int = OPEN_DESCRIPTORS_MAX) -> None:
        self._root = str(root)
        make_directory(self._root, 0o700)
        self._descriptors: OrderedDict[str, int] = OrderedDict()
        self._open_descriptors_max = open_descriptors_max
        self._lock: DirectoryLock | None = None
        self._reported = False
        """Whether the full disk was logged."""
        self.before_write: BeforeWrite | None = None

    def tell_of(self, reason: OSError) -> None:
        """Log a full disk, once for all files until `write_file` succeeds."""
        if reason.errno in NO_ROOM and not self._reported:
            self._reported = True
            text = "%s is full: produce requests fail until space is free: %s"
            log.error(text, self._root, os.strerror(reason.errno))

    def open(self, path: str) -> File:
        """See `Files`."""
        if path not in self._descriptors:
            self._open_descriptor(path, os.O_CREAT)
        return OsFile(self, path)

    def names(self, directory: str) -> list[str]:
        """See `Files`."""
        try:
            return sorted(os.listdir(self._at(directory)))  # noqa: PTH208 -- only the names are needed
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        """See `Files`."""
        return Path(self._at(path)).exists()

    def make_directory(self, directory: str) -> None:
        """See `Files`."""
        Path(self._at(directory)).mkdir(parents=True, exist_ok=True)

    def read_file(self, path: str) -> bytes | None:
        """See `Files`."""
        try:
            return Path(self._at(path)).read_bytes()
        except FileNotFoundError:
            return None

    def write_file(self, path: str, content: bytes, *, flushed: bool = False) -> None:
        """See `Files`."""
        if self.before_write is not None:
            self.before_write(APPEND)
            if flushed:
                self.before_write(FLUSH)
        replace_file(self._at(path), content, flushed=flushed)
        self._reported = False
        self.close_descriptor(path)  # it refers to the replaced file

    def flush_file(self, path: str) -> None:
        """See `Files`."""
        if self.before_write is not None:
            self.before_write(FLUSH)
        flush_path(self._at(path))

    def flush_directory(self, directory: str) -> None:
        """See `Files`."""
        self.flush_file(directory)

    def remove(self, path: str) -> None:
        """See `Files`."""
        self.close_descriptor(path)
        Path(self._at(path)).unlink(missing_ok=True)

    def remove_directory(self, directory: str) -> None:
        """See `Files`."""
        path = self._at(directory)
        self._close_all_in(directory)
        shutil.rmtree(path, ignore_errors=True)

    def rename(self, source: str, target: str) -> None:
        """See `Files`."""
        origin, destination = Path(self._at(source)), Path(self._at(target))
        self._close_all_in(source)
        self.close_descriptor(source)
        self.close_descriptor(target)
        if destination.is_dir():
            raise FileExistsError(target)
        origin.replace(destination)

    def space_bytes(self) -> tuple[int, int]:
        """See `Files`."""
        volume = os.statvfs(self._root)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def lock(self) -> None:
        """See `Files`."""
        assert self._lock is None, f"{self._root} is already locked by this owner"
        self._lock = DirectoryLock(self._root)

    def unlock(self) -> None:
        """See `Files`."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def close(self) -> None:
        """Close all descriptors."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def descriptor(self, path: str) -> int:
        """Return a descriptor of an existing file; open the file if necessary."""
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            return self._open_descriptor(path, 0)
        self._descriptors.move_to_end(path)
        return descriptor

    def close_descriptor(self, path: str) -> None:
        """Close the descriptor of a file, if it is open."""
        descriptor = self._descriptors.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def _open_descriptor(self, path: str, flags: int) -> int:
        while len(self._descriptors) >= self._open_descriptors_max:
            os.close(self._descriptors.popitem(last=False)[1])
        descriptor = os.open(self._at(path), os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
        self._descriptors[path] = descriptor
        return descriptor

    def _close_all_in(self, directory: str) -> None:
        for path in [path for path in self._descriptors if path.startswith(f"{directory}/")]:
            self.close_descriptor(path)

    def _at(self, path: str) -> str:
        return path_below(self._root, path) if path else self._root


def files_of(directories: Sequence[str]) -> Files | Mapping[str, Files]:
    """Return the file systems of a node's directories, or one in memory if it has none."""
    if not directories:
        return MemoryFiles()
    return {str(Path(directory).absolute()): OsFiles(directory) for directory in directories}
