"""Batches with a valid header and checksum but unreadable records."""

from __future__ import annotations

import struct

from anabranch.protocol.records.batch import HEADER_BYTES, seal
from tests.broker.storage.batches import NOW_MS, batch, batch_of

RECORD = batch()[HEADER_BYTES:]


def with_last_delta(records: bytes, last_offset_delta: int) -> bytes:
    buffer = bytearray(records)
    struct.pack_into(">i", buffer, 23, last_offset_delta)
    seal(memoryview(buffer), 0, len(buffer))
    return bytes(buffer)


def with_base_timestamp(records: bytes, base_timestamp: int) -> bytes:
    buffer = bytearray(records)
    struct.pack_into(">q", buffer, 27, base_timestamp)
    seal(memoryview(buffer), 0, len(buffer))
    return bytes(buffer)


def swelling_zstd(size: int) -> bytes:
    """A frame of blocks that are one byte each, and 128 KiB when they are opened (RFC 8878, 3.1.1.2)."""
    blocks = size >> 17
    headers = (int.to_bytes(1 << 20 | 1 << 1 | (number == blocks - 1), 3, "little") for number in range(blocks))
    return bytes.fromhex("28b52ffd 00 38") + b"".join(header + b"x" for header in headers)


UNREADABLE = {
    "a thousand declared, one there": batch_of(RECORD, 1000),
    "nonsense": batch_of(b"\xff" * 70, 1),
    "no zstd": batch_of(b"", 1, "zstd", packed=b"nonsense" * 9),
    "half a gigabyte": batch_of(b"", 1, "zstd", packed=swelling_zstd(1 << 29)),
    "offsets beyond the batch": batch_of(RECORD.replace(b"\0\0\0\x06", b"\0\0\x7e\x06"), 1),
    "a name that is no text": batch_of(b"\x1c\0\0\0\x06key\x02v\x02\x02\xff\x02x", 1),
    "an unknown marker": batch(producer=(9, 0, -1), control=True, key=b"k", transactional=True),
}
"""No record of these can be handed out."""
FAR_TIMESTAMPS = with_base_timestamp(batch(2, timestamp_ms=NOW_MS), 2**63 - 1)
FAR_OFFSETS = with_last_delta(batch(), 2**30)


def with_max_timestamp(records: bytes, max_timestamp: int) -> bytes:
    buffer = bytearray(records)
    struct.pack_into(">q", buffer, 35, max_timestamp)
    seal(memoryview(buffer), 0, len(buffer))
    return bytes(buffer)
