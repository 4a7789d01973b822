"""The port to a file system. Its adapters are `OsFiles` (on disk) and `MemoryFiles` (in this process).

Paths are relative to the adapter's root, with "/" between their parts. A `File` is append-only: it grows at its end, is
read anywhere, and is cut. Both adapters pass the same contract test, so a cluster in memory behaves as one on disk.

Writes go to the page cache: what was appended survives the death of the process, not of the machine, until `flush`.
Outside failures are `OSError`. An append that fails leaves the file as it was, or says so with the same error again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, Protocol

Buffer = bytes | bytearray | memoryview
APPEND: Final = "append"
FLUSH: Final = "flush"
BeforeWrite = Callable[[str], None]
"""What an adapter may be given as `before_write`: called with APPEND or FLUSH, it raises OSError in place of that."""

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
        """The size of the volume and its free bytes; -1 where the system does not tell."""

    def lock(self) -> None:
        """Keep every other owner out until `unlock`, or until this process ends. Raises `DirectoryInUse`."""

    def unlock(self) -> None:
        """Let others in; nothing happens if it was not locked."""
