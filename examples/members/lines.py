"""What a member in Python writes down: a line of JSON for each record that it is handed.

The file is opened for appending, and what was handed out together is one write: the lines of all members of a group
stand in the order in which they were handed out, and a member that is killed leaves no half of a line behind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable


class Lines:
    """The file of a group, for one of its members."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, records: Iterable[tuple[bytes, bytes, int, int]]) -> None:
        """Write down key, value (KEY/SEQUENCE), partition and offset of each record, before they are committed.

        Raises OSError if not everything could be written.
        """
        told = b"".join(_line(*record) for record in records)
        if os.write(self._file, told) != len(told):
            raise OSError("a write was cut short")


def _line(key: bytes, value: bytes, partition: int, offset: int) -> bytes:
    place = {"partition": partition, "offset": offset, "member": str(os.getpid())}
    row = {"key": key.decode(), "sequence": int(value.rpartition(b"/")[2]), **place}
    return json.dumps(row).encode() + b"\n"
