"""Builds paths from names of external origin: topics, snapshots, entries of archives.

Invariant: a path that `path_below` returns lies below its root, whatever the name is. The check uses the text alone.
Symbolic links below a root are the operator's own, as in Kafka, and are followed.
"""

from __future__ import annotations

import errno
import os


class InvalidPath(OSError):
    """A name that would leave its directory, or that no file can have."""


def path_below(root: str, name: str) -> str:
    """Return the path of `name` below `root`. Raises InvalidPath unless each part of it is a file name."""
    if "\0" in name or not set(name.split("/")).isdisjoint(("", ".", "..")):
        raise InvalidPath(errno.EINVAL, os.strerror(errno.EINVAL), name)
    return f"{root}/{name}"


def path_inside(root: str, name: str) -> str:
    """Return the path of the file `name` directly in `root`. Raises InvalidPath if it would be elsewhere."""
    if "/" in name:
        raise InvalidPath(errno.EINVAL, os.strerror(errno.EINVAL), name)
    return path_below(root, name)
