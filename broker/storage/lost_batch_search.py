"""Whether what stands behind the end of a log tells that the log was longer once.

A process that is killed leaves part of one batch at most, and no producer was told that it is stored. A batch that is
whole and not sound, or a sound one behind the damage, was stored and perhaps acknowledged: that log has lost something.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.storage.files import File
from anabranch.protocol.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, check_crc, read_header

_MAGIC_AT: Final = 16
_MAGIC_BYTE: Final = bytes([MAGIC])
_SEARCH_BYTES: Final = 1024 * 1024


def contains_batch(file: File, start: int) -> bool:
    """Whether a sound batch begins anywhere behind a place of a file that none begins at.

    The damage may be in the length that leads to the next one, so every byte may be its first.
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
