"""Batches for the tests of logs."""

from __future__ import annotations

from protocol.records.batch import stamp
from protocol.records.batch_builder import BatchBuilder

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
    """One batch; `producer` is (id, epoch, base sequence), `at` the (offset, epoch) a leader has stamped on it."""
    builder = BatchBuilder(compression, limit_bytes=1 << 30)
    for index in range(records):
        builder.append(key, value, (), timestamp_ms + index)
    built = bytearray(builder.build(*producer, transactional=transactional, control=control))
    if at is not None:
        stamp(built, 0, *at)
    return bytes(built)
