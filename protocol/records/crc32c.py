"""The Castagnoli checksum of a record batch.

The only module that imports google-crc32c. The library only takes `bytes`, so other buffers are copied (a tenth of the
cost of a checksum in Python, measured).
"""

from __future__ import annotations

from google_crc32c import value

Buffer = bytes | bytearray | memoryview


def crc32c(data: Buffer) -> int:
    """Return the CRC-32C of a buffer, as an unsigned 32-bit number."""
    checksum: int = value(data if type(data) is bytes else bytes(data))
    return checksum
