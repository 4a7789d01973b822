"""Verifies batches read from a segment: their checksums, and their offsets, which the checksums do not cover.

Pure. Offsets must grow from batch to batch and stay below the segment's end. Where they decrease, either of two batches
may be wrong, so both are invalid. A reader that continues at a wrong offset would skip records.
"""

from __future__ import annotations

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import check_crc, iter_batches


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
