"""Replaces files so that a power failure leaves the old or the new content, and nothing between.

A rename may reach the disk before the content of the renamed file, and a file's content before its name. So the content
is flushed before the rename, and the directory after it. Source: Kafka's `CheckpointFile` and
`Utils.atomicMoveWithFallback`.
"""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: str, content: bytes, *, flushed: bool = True, mode: int = 0o666) -> None:
    """Replace a file's content atomically. Without `flushed`, a power failure may leave any content. Raises OSError."""
    draft = f"{path}.tmp"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        write_all(descriptor, content)
        if flushed:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    Path(draft).replace(path)
    if flushed:
        flush_path(str(Path(path).parent))


def write_all(descriptor: int, content: bytes) -> None:
    """Write all bytes at the position of a descriptor. Raises OSError."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def make_directory(path: str, mode: int = 0o777) -> None:
    """Create a directory and its missing parents, and flush their names. Raises OSError."""
    missing = [one for one in (Path(path), *Path(path).parents) if not one.exists()]
    Path(path).mkdir(mode=mode, parents=True, exist_ok=True)
    for one in reversed(missing):
        flush_path(str(one.parent))


def flush_path(path: str) -> None:
    """Flush the content of a file, or the names in a directory, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
