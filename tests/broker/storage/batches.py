"""Batches for the tests of logs."""

from __future__ import annotations

from anabranch.protocol.records.batch import HEADER, HEADER_BYTES, MAGIC, seal
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.compression import Compression, compress
from tests.protocol.stored_batch import stored_at

NOW_MS = 1_700_000_000_000


def batch(
    records: int = 1,
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    timestamp_ms: int = NOW_MS,
    value: bytes | None = b"value",
    key: bytes | None = b"key",
    compression: str = "none",
    transactional: bool = False,
    control: bool = False,
    at: tuple[int, int] | None = None,
) -> bytes:
    """One batch; `producer` is (id, epoch, base sequence), `at` the (offset, epoch) that a leader has set."""
    builder = BatchBuilder(compression, limit_bytes=1 << 30)
    for index in range(records):
        builder.append(key, value, (), timestamp_ms + index)
    built = bytes(builder.build(*producer, transactional=transactional, control=control))
    return built if at is None else stored_at(built, *at)


def batch_of(content: bytes, count: int, compression: str = "none", *, packed: bytes | None = None) -> bytes:
    """A batch whose header and checksum are right, whatever its records are; `packed` is what they are compressed."""
    codec = Compression.by_name(compression)
    blob = compress(codec, content) if packed is None else packed
    size = HEADER_BYTES + len(blob)
    fields = (0, size - 12, -1, MAGIC, 0, codec, max(count - 1, -1), NOW_MS, NOW_MS, -1, -1, -1, count)
    buffer = bytearray(HEADER.pack(*fields) + blob)
    seal(memoryview(buffer), 0, size)
    return bytes(buffer)
