"""Verifies the batches of a segment: by their headers in a scan, and with their checksums before they are served.

Offsets must grow from batch to batch and stay in the segment's range; checksums do not cover them. Where the offsets of
served batches decrease, either of two batches may be wrong, so both are invalid. A reader that continues at a wrong
offset would skip records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anabranch.broker.storage.files import File
from anabranch.broker.storage.index import RELATIVE_OFFSET_MAX
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    check_crc,
    iter_batches,
    read_header,
)

_SCAN_BYTES: Final = 64 * 1024


def valid_headers(file: File, base_offset: int, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every batch of a segment file from a position on, up to the first invalid header."""
    size = file.size_bytes
    next_offset = base_offset
    window, window_start = b"", 0
    while position + HEADER_BYTES <= size:
        if position + HEADER_BYTES > window_start + len(window):
            window, window_start = file.read(position, _SCAN_BYTES), position
        header = read_header(window, position - window_start)
        sound = (
            header.magic == MAGIC
            and header.batch_length >= HEADER_BYTES - LOG_OVERHEAD_BYTES
            and position + header.size_bytes <= size
            and header.last_offset_delta >= 0
            and header.base_offset >= next_offset
            and header.last_offset - base_offset <= RELATIVE_OFFSET_MAX
        )
        if not sound:
            return
        yield position, header
        next_offset = header.next_offset
        position += header.size_bytes


def valid_prefix(data: bytes, base_offset: int, end_offset: int) -> tuple[int, str]:
    """Return how many bytes are valid batches from `base_offset` to `end_offset`, and the fault after them.

    An incomplete batch at the end is not valid; its fault is "".
    """
    sound = last = 0
    next_offset = base_offset
    try:
        for position, header in iter_batches(data):
            if header.base_offset < next_offset:
                return last, f"offset {header.base_offset} instead of {next_offset}"
            if header.next_offset > end_offset:
                return sound, f"offset {header.last_offset} in front of {end_offset}"
            if not check_crc(data, position, header):
                return sound, f"the checksum of the batch at {header.base_offset} is wrong"
            last, sound, next_offset = position, position + header.size_bytes, header.next_offset
    except DecodeError as reason:
        return sound, str(reason)
    return sound, ""
