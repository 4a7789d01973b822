"""Locks a directory for one process, by the file `.lock` in it, until the owner ends.

The kernel holds the lock, not the file's presence, so a killed process leaves nothing stale. The file holds the owner's
process id, for the error message of another process. Source: the `.lock` of Kafka's `LogManager` and of Streams'
`StateDirectory`.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

LOCK_FILE: Final = ".lock"
COMMAND_CHARS_MAX: Final = 120
_HELD: Final = frozenset({errno.EAGAIN, errno.EACCES})


class DirectoryInUse(OSError):
    """Another process holds the directory's lock; the message names it."""


class DirectoryLock:
    """The lock of one directory, from construction to `release`. Raises `DirectoryInUse`, or OSError."""

    def __init__(self, directory: str | Path) -> None:
        path = Path(directory).absolute() / LOCK_FILE
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Not lockf: that allows a process to lock repeatedly, and closing any descriptor of the file releases it.
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._name_holder(os.getpid())
        except OSError as error:
            holder = _holder(os.pread(self.descriptor, 32, 0))
            self.release()
            if error.errno in _HELD:
                raise DirectoryInUse(
                    f"Failed to acquire lock on file {LOCK_FILE} in {path.parent}: {holder} is using this directory"
                ) from None
            raise

    def hand_over(self, pid: int) -> None:
        """Hand the lock to the child process `pid`, which has inherited the descriptor: it ends with that process."""
        self._name_holder(pid)
        self.release()

    def release(self) -> None:
        """Release the lock. Calling it twice is harmless."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _name_holder(self, pid: int) -> None:
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{pid}\n".encode(), 0)


def _holder(content: bytes) -> str:
    if not content.strip().isdigit():
        return "another process"
    pid = int(content)
    if pid == os.getpid():
        return "another node of this process"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return f"process {pid}"
    command = b" ".join(words).decode(errors="replace")
    if len(command) > COMMAND_CHARS_MAX:
        command = f"{command[:COMMAND_CHARS_MAX]} ..."
    return f"process {pid} ({command})"
