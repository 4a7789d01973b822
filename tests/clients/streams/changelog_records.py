"""Records of a changelog, as a task is given them, and the rows that they become."""

from __future__ import annotations

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.protocol.records.record import Headers


def logged(offset: int, timestamp_ms: int, key: bytes, value: bytes | None, headers: Headers = ()) -> ConsumerRecord:
    """A record of partition 3 of the changelog of `counts`."""
    return ConsumerRecord("app-counts-changelog", 3, offset, timestamp_ms, key, value, tuple(headers), 0)


def row(value: bytes, timestamp_ms: int) -> bytes:
    """What a timestamped store keeps, in memory and on disk."""
    return timestamp_ms.to_bytes(8, "big") + value
