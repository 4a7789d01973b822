"""The Castagnoli checksum of a record batch.

The one place that knows the google-crc32c library. The library only takes `bytes`, so other buffers are copied (a tenth
of what a checksum in Python would cost, measured).
"""

from __future__ import annotations

from google_crc32c import value

Buffer = bytes | bytearray | memoryview


def crc32c(data: Buffer) -> int:
    """CRC-32C of a buffer, as an unsigned 32-bit number."""
    checksum: int = value(data if type(data) is bytes else bytes(data))
    return checksum
