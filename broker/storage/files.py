"""The interface to a file system. Its adapters are `OsFiles` (on disk) and `MemoryFiles` (in this process).

Paths are relative to the adapter's root, with "/" between their parts. A `File` supports append, read and truncate.
Both adapters pass the same contract test, so a cluster in memory behaves like one on disk.

Writes go to the page cache: they survive the end of the process, but a power failure only after a flush. Content and
name of a file are flushed apart, as in POSIX: a new or renamed file is there after a power failure only if `flush` or
`flush_file` was called for its content, and `flush_directory` for its name. Without a flush, any part of a content may
be there, under the old name or the new one.

Failures are `OSError`. A failed append leaves the file unchanged; a failure to restore the file is an `OSError`, too.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, Protocol

Buffer = bytes | bytearray | memoryview
APPEND: Final = "append"
FLUSH: Final = "flush"
BeforeWrite = Callable[[str], None]
"""Type of an adapter's `before_write` hook: called with APPEND or FLUSH, it may raise OSError to fail that call."""

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error codes of a full disk, quota or file size limit; a later attempt may succeed."""


class File(Protocol):
    """One append-only file with a single owner."""

    size_bytes: int

    def append(self, *chunks: Buffer) -> None:
        """Append all bytes, or none and raise OSError."""

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return bytes from a position on; fewer at the end of the file."""

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file to a size."""

    def flush(self) -> None:
        """Write the file's content to the disk (fsync)."""

    def close(self) -> None:
        """Close the file; a later read or append opens it again."""


class Files(Protocol):
    """A tree of directories and files."""

    def open(self, path: str) -> File:
        """Open the file at a path; create it if it is missing. Its directory must exist."""

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; none if it does not exist."""

    def exists(self, path: str) -> bool:
        """Check whether a file or directory exists."""

    def make_directory(self, directory: str) -> None:
        """Create a directory and its parents, if they are missing."""

    def read_file(self, path: str) -> bytes | None:
        """Return the content of a small file; None if it does not exist."""

    def write_file(self, path: str, content: bytes, *, flushed: bool = False) -> None:
        """Replace the content of a small file atomically: after a kill it is the old or the new one.

        With `flushed` it is the new one after a return, and the old or the new one before, also after a power failure.
        """

    def flush_file(self, path: str) -> None:
        """Flush the content of a file that `write_file` wrote to the disk. Raises FileNotFoundError if it is gone."""

    def flush_directory(self, directory: str) -> None:
        """Flush the names in a directory, "" for the root, to the disk."""

    def remove(self, path: str) -> None:
        """Remove a file; no effect if it does not exist."""

    def remove_directory(self, directory: str) -> None:
        """Remove a directory and its content; no effect if it does not exist."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; an existing target file is replaced."""

    def space_bytes(self) -> tuple[int, int]:
        """Return total and free bytes of the volume; -1 if unknown."""

    def lock(self) -> None:
        """Lock the directory exclusively until `unlock` or the end of this process. Raises `DirectoryInUse`."""

    def unlock(self) -> None:
        """Release the lock; no effect if the directory was not locked."""
