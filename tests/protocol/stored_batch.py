"""Record batches as a leader stores them."""

from __future__ import annotations

import struct

from anabranch.protocol.records.batch import LEADER_EPOCH_POSITION, LENGTH_POSITION, MAGIC_POSITION


def stored_at(records: bytes | bytearray, offset: int, epoch: int = 0) -> bytes:
    """A batch with the fields that a leader writes, whatever its records are: base offset and leader epoch."""
    length = records[LENGTH_POSITION:LEADER_EPOCH_POSITION]
    return struct.pack(">q", offset) + length + struct.pack(">i", epoch) + records[MAGIC_POSITION:]
