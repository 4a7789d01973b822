"""Files that hold records or secrets, and that nobody but their owner may read."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def write_private_file(path: str | Path, content: bytes) -> None:
    """Write a file with mode 0600, also in place of one that others could read. A pipe or a device stays as it is."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            with contextlib.suppress(PermissionError):  # another user's file, which that one lets us write
                os.fchmod(descriptor, 0o600)
        file.write(content)
