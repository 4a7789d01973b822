"""Searches the bytes after the valid end of a log for batches, which prove that the log has lost records.

A killed process leaves at most part of one batch, which was not acknowledged. A complete batch with a wrong checksum,
or a valid batch after the damage, was stored and perhaps acknowledged: records were lost.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.storage.files import File
from anabranch.protocol.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, check_crc, read_header

_MAGIC_AT: Final = 16
_MAGIC_BYTE: Final = bytes([MAGIC])
_SEARCH_BYTES: Final = 1024 * 1024


def contains_batch(file: File, start: int) -> bool:
    """Check whether a valid batch begins anywhere after `start`.

    Every byte is tried, since the damage may be in the length that leads to the next batch.
    """
    position = start + 1
    while position + HEADER_BYTES <= file.size_bytes:
        window = file.read(position, _SEARCH_BYTES + HEADER_BYTES)
        found = window.find(_MAGIC_BYTE, _MAGIC_AT)
        while -1 < found < _SEARCH_BYTES + _MAGIC_AT and found - _MAGIC_AT + HEADER_BYTES <= len(window):
            if _is_batch(file, position + found - _MAGIC_AT, window, found - _MAGIC_AT):
                return True
            found = window.find(_MAGIC_BYTE, found + 1)
        position += _SEARCH_BYTES
    return False


def _is_batch(file: File, position: int, window: bytes, inside: int) -> bool:
    header = read_header(window, inside)
    plausible = (
        header.batch_length >= HEADER_BYTES - LOG_OVERHEAD_BYTES
        and position + header.size_bytes <= file.size_bytes
        and header.base_offset >= 0
        and header.last_offset_delta >= 0
    )
    return plausible and check_crc(file.read(position, header.size_bytes), 0, header)
