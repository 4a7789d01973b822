from __future__ import annotations

import pytest

from anabranch.protocol.records.crc32c import crc32c


# the check value of the CRC catalogue, and the examples of RFC 3720 B.4
@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_known_checksums(data: bytes, checksum: int) -> None:
    for buffer in (data, bytearray(data), memoryview(data), memoryview(b"x" + data + b"x")[1:-1]):
        assert crc32c(buffer) == checksum
