"""The Castagnoli checksum of a record batch.

The one place that knows the google-crc32c library. It is loaded with the first checksum: nodes and tools that never see
a record do not pay for it. The library only takes `bytes`, so other buffers are copied (a tenth of what a checksum in
Python would cost, measured).
"""

from __future__ import annotations

from collections.abc import Callable

Buffer = bytes | bytearray | memoryview

_value: Callable[[bytes], int] | None = None


def crc32c(data: Buffer) -> int:
    """CRC-32C of a buffer, as an unsigned 32-bit number."""
    value = _value or _load()
    return value(data if type(data) is bytes else bytes(data))


def _load() -> Callable[[bytes], int]:
    global _value
    import google_crc32c

    value: Callable[[bytes], int] = google_crc32c.value
    _value = value
    return value
