"""A file that the disk has refused to make for now.

A log that starts over has dropped all it had before it makes its new file: a crash in between leaves an empty log. When
the disk refuses (it is full, or there is no descriptor left) the log is empty just the same, and takes appends as soon
as the file can be made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from anabranch.broker.storage.files import Buffer, File

log = logging.getLogger(__name__)


def create_or_defer(create: Callable[[], File]) -> File:
    """A file that is made now, or stands for one until it can be made."""
    try:
        return create()
    except OSError as reason:
        log.warning("a file is made later, when it is written to: %s", reason)
        return DeferredFile(create)


class DeferredFile:
    """Empty; `make` takes its place when there is something to keep. Appending and flushing raise OSError till then."""

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
