"""The port to a file system, and its two adapters: `OsFiles` on disk and `MemoryFiles` in this process.

Paths are relative to the adapter's root, with "/" between their parts. A `File` is append-only: it grows at its end, is
read anywhere, and is cut. Both adapters pass the same contract test, so a cluster in memory behaves as one on disk.

Writes go to the page cache: what was appended survives the death of the process, not of the machine, until `flush`.
Outside failures are `OSError`. An append that fails leaves the file as it was, or says so with the same error again.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from anabranch.clients.directory_lock import DirectoryLock

Buffer = bytes | bytearray | memoryview

OPEN_DESCRIPTORS_MAX: Final = 512
"""Descriptors that `OsFiles` holds at a time; the least recently used is closed and reopened when it is needed."""


NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What a full disk says, or one of which the user or the process has its share: there may be room later."""


class File(Protocol):
    """One append-only file, in the hands of one owner."""

    size_bytes: int

    def append(self, *chunks: Buffer) -> None:
        """Add bytes at the end: all of them, or none and OSError."""

    def read(self, position: int, size_bytes: int) -> bytes:
        """The bytes from a position on; fewer at the end of the file."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to a size."""

    def flush(self) -> None:
        """Come back when the file's content survives a power failure."""

    def close(self) -> None:
        """Give back what the file holds; reading or appending afterwards opens it again."""


class Files(Protocol):
    """A tree of directories and files."""

    def open(self, path: str) -> File:
        """The file at a path, made if it is not there; its directory exists."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted; none if there is no such directory."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory at a path."""

    def make_directory(self, directory: str) -> None:
        """Make a directory and its parents, if they are missing."""

    def read_file(self, path: str) -> bytes | None:
        """A small file's whole content, or None if there is none."""

    def write_file(self, path: str, content: bytes) -> None:
        """Replace a small file's content as one step: readers see the old or the new one, also after a crash."""

    def flush_file(self, path: str) -> None:
        """Come back when what `write_file` wrote survives a power failure, the new file's name included."""

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens if there is none."""

    def remove_directory(self, directory: str) -> None:
        """Remove a directory with all that is in it; nothing happens if there is none."""

    def rename(self, source: str, target: str) -> None:
        """Move a file or directory; an existing target file is replaced."""

    def space_bytes(self) -> tuple[int, int]:
        """The size of the volume and what is free of it; -1 where nobody knows."""

    def lock(self) -> None:
        """Keep every other owner out until `unlock`, or until this process ends. Raises `DirectoryInUse`."""

    def unlock(self) -> None:
        """Let others in; nothing happens if it was not locked."""


# --------------------------------------------------------------------------------------------------------------- memory


class MemoryFile:
    """A file that is one growing array of bytes."""

    __slots__ = ("_content", "size_bytes")

    def __init__(self, content: bytes = b"") -> None:
        self._content = bytearray(content)
        self.size_bytes = len(content)

    def append(self, *chunks: Buffer) -> None:
        """See `File`."""
        for chunk in chunks:
            self._content += chunk
        self.size_bytes = len(self._content)

    def read(self, position: int, size_bytes: int) -> bytes:
        """See `File`. Only what is asked for is copied."""
        with memoryview(self._content) as view:
            return bytes(view[position : position + size_bytes])

    def truncate(self, size_bytes: int) -> None:
        """See `File`."""
        if size_bytes < self.size_bytes:
            del self._content[size_bytes:]
            self.size_bytes = size_bytes

    def flush(self) -> None:
        """Nothing is safer than it already is."""

    def close(self) -> None:
        """Nothing is held beside the content."""

    def drop(self) -> None:
        """The file was removed: whoever still names it must not keep its content alive."""
        self._content = bytearray()
        self.size_bytes = 0


class MemoryFiles:
    """A file system that dies with the process: some hundred bytes per file and nothing to start or clean up."""

    def __init__(self) -> None:
        self._directories: dict[str, dict[str, MemoryFile | None]] = {"": {}}  # None stands for a directory

    def open(self, path: str) -> File:
        """See `Files`."""
        names, name = self._entry(path)
        file = names.get(name)
        if file is None:
            file = self._put(names, path, MemoryFile())
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

    def write_file(self, path: str, content: bytes) -> None:
        """See `Files`."""
        names, _ = self._entry(path)
        self._put(names, path, MemoryFile(content))

    def flush_file(self, path: str) -> None:
        """See `Files`."""

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
        """Memory has no size of its own."""
        return -1, -1

    def lock(self) -> None:
        """Nobody else can come here."""

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
        """A directory that exists and all below it, found from above: there may be thousands beside it."""
        if directory not in self._directories:
            return []
        found = [directory]
        for path in found:
            inside = self._directories[path]
            found += [f"{path}/{name}" for name, file in inside.items() if file is None]
        return found


# ----------------------------------------------------------------------------------------------------------------- disk


class OsFile:
    """A file on disk. Its size is known without asking: nobody else appends to it."""

    __slots__ = ("_files", "path", "size_bytes")

    def __init__(self, files: OsFiles, path: str) -> None:
        self._files = files
        self.path = path
        self.size_bytes = os.fstat(files.descriptor(path)).st_size

    def append(self, *chunks: Buffer) -> None:
        """See `File`. A full disk may take part of the bytes: that part is cut off again."""
        descriptor = self._files.descriptor(self.path)
        expected = sum(len(chunk) for chunk in chunks)
        try:
            written = os.pwritev(descriptor, chunks, self.size_bytes)
            if written < expected:
                # The kernel says why with the next write; short writes without a reason just go on.
                self._append_rest(descriptor, b"".join(chunks), written)
        except OSError:
            os.ftruncate(descriptor, self.size_bytes)
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
        os.fdatasync(self._files.descriptor(self.path))

    def close(self) -> None:
        """See `File`."""
        self._files.close_descriptor(self.path)


class OsFiles:
    """A directory of the machine."""

    def __init__(self, root: Path | str, *, open_descriptors_max: int = OPEN_DESCRIPTORS_MAX) -> None:
        self._root = str(root)
        Path(self._root).mkdir(parents=True, exist_ok=True)
        self._descriptors: OrderedDict[str, int] = OrderedDict()
        self._open_descriptors_max = open_descriptors_max
        self._lock: DirectoryLock | None = None

    def open(self, path: str) -> File:
        """See `Files`."""
        if path not in self._descriptors:
            self._open_descriptor(path, os.O_CREAT)
        return OsFile(self, path)

    def names(self, directory: str) -> list[str]:
        """See `Files`."""
        try:
            return sorted(os.listdir(self._at(directory)))  # noqa: PTH208 -- names are all that is asked for
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

    def write_file(self, path: str, content: bytes) -> None:
        """See `Files`."""
        target = Path(self._at(path))
        draft = target.with_name(f"{target.name}.tmp")
        draft.write_bytes(content)
        draft.replace(target)
        self.close_descriptor(path)  # it would go on to show the file that was replaced

    def flush_file(self, path: str) -> None:
        """See `Files`."""
        target = Path(self._at(path))
        for one in (target, target.parent):
            descriptor = os.open(one, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def remove(self, path: str) -> None:
        """See `Files`."""
        self.close_descriptor(path)
        Path(self._at(path)).unlink(missing_ok=True)

    def remove_directory(self, directory: str) -> None:
        """See `Files`."""
        self._close_all_in(directory)
        shutil.rmtree(self._at(directory), ignore_errors=True)

    def rename(self, source: str, target: str) -> None:
        """See `Files`."""
        self._close_all_in(source)
        self.close_descriptor(source)
        self.close_descriptor(target)
        destination = Path(self._at(target))
        if destination.is_dir():
            raise FileExistsError(target)
        Path(self._at(source)).replace(destination)

    def space_bytes(self) -> tuple[int, int]:
        """See `Files`."""
        volume = os.statvfs(self._root)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def lock(self) -> None:
        """See `Files`."""
        assert self._lock is None, f"{self._root} is locked by this owner already"
        self._lock = DirectoryLock(self._root)

    def unlock(self) -> None:
        """See `Files`."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def close(self) -> None:
        """Give back all descriptors."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def descriptor(self, path: str) -> int:
        """A descriptor of an existing file, kept open while it is in use."""
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            return self._open_descriptor(path, 0)
        self._descriptors.move_to_end(path)
        return descriptor

    def close_descriptor(self, path: str) -> None:
        """Close a file, if it is open."""
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
        return f"{self._root}/{path}" if path else self._root


def files_of(directories: Sequence[str]) -> Files | Mapping[str, Files]:
    """The files of a node: in its directories, or in memory if it has none."""
    if not directories:
        return MemoryFiles()
    return {str(Path(directory).absolute()): OsFiles(directory) for directory in directories}
