"""Fills a disk: with a ballast file on the node's file system, or by a limit on the size of the node's files.

A ballast file acts like a full disk (ENOSPC for every process on it), and is refused on a large file system that others
share. A limit (RLIMIT_FSIZE of the process, EFBIG for each file that would exceed it) affects one node alone.
"""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from typing import Final

BALLAST: Final = "chaos-ballast"
LARGE_BYTES: Final = 1 << 30
CHUNK_BYTES: Final = 1 << 20


class TooLarge(ValueError):
    """The file system is too large to fill, so it was not made for this."""


def free_bytes(directory: Path) -> int:
    """Return the free bytes on a directory's file system."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def fill(directory: Path, *, leave_bytes: int = 0, at_most_bytes: int = LARGE_BYTES) -> int:
    """Write a ballast file until only `leave_bytes` are free.

    Returns its size. Raises TooLarge over `at_most_bytes`.
    """
    target_bytes = free_bytes(directory) - leave_bytes
    if target_bytes > at_most_bytes:
        raise TooLarge(f"{directory} has {free_bytes(directory):,} bytes free: use a small separate file system")
    written = 0
    with (directory / BALLAST).open("ab") as ballast:
        while written < target_bytes:
            chunk = min(CHUNK_BYTES, target_bytes - written)
            try:
                os.posix_fallocate(ballast.fileno(), written, chunk)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                break
            written += chunk
    return written


def release(directory: Path) -> int:
    """Remove the ballast. Returns its size in bytes."""
    ballast = directory / BALLAST
    size = ballast.stat().st_size if ballast.exists() else 0
    ballast.unlink(missing_ok=True)
    return size


def limit_files(pid: int, size_bytes: int | None) -> None:
    """Limit the size of the process's files; None lifts the limit."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if size_bytes is None else size_bytes, hard))
