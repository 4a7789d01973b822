"""How far bytes that were read back are what was once written: checksums, and the offsets that these do not cover.

Pure. Offsets grow from batch to batch and stay below where the segment ends. Where they fall, either of two batches may
be the wrong one, and neither counts as sound: a reader that followed an offset out of nowhere would skip what lies
between.
"""

from __future__ import annotations

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import check_crc, iter_batches


def valid_prefix(data: bytes, base_offset: int, end_offset: int) -> tuple[int, str]:
    """How many bytes are sound batches with offsets from `base_offset` to `end_offset`, and what is wrong behind them.

    An incomplete batch at the end is not sound, and says nothing of itself: "".
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
