"""Files with records or secrets, readable only by their owner."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def write_private_file(path: str | Path, content: bytes) -> None:
    """Write a file with mode 0600, also over a readable one. A pipe or a device keeps its mode."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            with contextlib.suppress(PermissionError):  # another user's file that is writable for us
                os.fchmod(descriptor, 0o600)
        file.write(content)
