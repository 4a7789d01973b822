"""A file that is created later, because the disk refused to create it.

A log that is truncated fully deletes its segments before it creates a new one. The disk may refuse to create the file
(it is full, or no descriptor is left). The log is then empty, and accepts appends once the file can be created.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from anabranch.broker.storage.files import Buffer, File

log = logging.getLogger(__name__)


def create_or_defer(create: Callable[[], File]) -> File:
    """Create a file, or return a `DeferredFile` if the disk refuses."""
    try:
        return create()
    except OSError as reason:
        log.warning("cannot create a file now, retrying at its next write: %s", reason)
        return DeferredFile(create)


class DeferredFile:
    """An empty file. Append and flush create the real file with `make`, and raise OSError while that fails."""

    __slots__ = ("_make", "size_bytes")

    def __init__(self, make: Callable[[], File]) -> None:
        self._make = make
        self.size_bytes = 0

    def append(self, *chunks: Buffer) -> None:
        """See `File`."""
        self._make().append(*chunks)

    def read(self, position: int, size_bytes: int) -> bytes:
        """See `File`."""
        return b""

    def truncate(self, size_bytes: int) -> None:
        """See `File`."""

    def flush(self) -> None:
        """See `File`."""
        self._make().flush()

    def close(self) -> None:
        """See `File`."""
