from __future__ import annotations

import struct

import pytest

from anabranch.broker.storage.producer_snapshot import decode_snapshot, encode_snapshot, snapshot_path
from anabranch.broker.storage.producer_state import BatchMetadata, ProducerEntry
from anabranch.protocol.records.crc32c import crc32c


def entry(producer_id: int, batches: list[BatchMetadata], *, transaction_start: int = -1) -> ProducerEntry:
    made = ProducerEntry(producer_id)
    made.epoch, made.coordinator_epoch, made.last_timestamp_ms = 3, 8, 1_700_000_000_000
    made.transaction_start = transaction_start
    made.batches.extend(batches)
    return made


FULL = entry(7, [BatchMetadata(2 * n, 2 * n + 1, 100 + 2 * n, 101 + 2 * n, 1_700_000_000_000) for n in range(5)])
WRAPPED = entry(2**40, [BatchMetadata(2**31 - 2, 1, 50, 53, 1_700_000_000_000)], transaction_start=50)
MARKER_ONLY = entry(9, [])


def described(one: ProducerEntry) -> tuple[object, ...]:
    return (
        one.producer_id,
        one.epoch,
        one.coordinator_epoch,
        one.transaction_start,
        one.last_timestamp_ms,
        [*one.batches],
    )


def test_producer_state_is_restored_from_a_snapshot() -> None:
    again = decode_snapshot(encode_snapshot([FULL, WRAPPED, MARKER_ONLY]))
    assert [described(one) for one in again] == [described(one) for one in (FULL, WRAPPED, MARKER_ONLY)]
    assert decode_snapshot(encode_snapshot([])) == []


def test_snapshot_bytes_equal_kafkas_in_kafkas_part() -> None:
    rows = [
        struct.pack(">qhiqiqiq", 7, 3, 9, 109, 1, 1_700_000_000_000, 8, -1),
        struct.pack(">qhiqiqiq", 2**40, 3, 1, 53, 3, 1_700_000_000_000, 8, 50),
        struct.pack(">qhiqiqiq", 9, 3, -1, -1, 0, 1_700_000_000_000, 8, -1),
    ]
    expected = struct.pack(">i", 3) + b"".join(rows)
    content = encode_snapshot([FULL, WRAPPED, MARKER_ONLY])
    assert content[:2] == b"\0\1"
    assert content[2:6] == struct.pack(">I", crc32c(content[6:]))
    assert content[6:].startswith(expected)
    kafkas = b"\0\1" + struct.pack(">I", crc32c(expected)) + expected
    again = decode_snapshot(kafkas)
    assert [list(one.batches) for one in again] == [[FULL.batches[-1]], [WRAPPED.batches[-1]], []]


def test_damage_at_any_byte_is_detected() -> None:
    content = encode_snapshot([FULL, WRAPPED])
    for position in range(len(content)):
        with pytest.raises(ValueError, match="snapshot"):
            decode_snapshot(content[:position])
        damaged = bytearray(content)
        damaged[position] ^= 0x20
        with pytest.raises(ValueError, match="snapshot"):
            decode_snapshot(bytes(damaged))


def test_snapshot_file_names_equal_kafkas() -> None:
    assert snapshot_path("t-0", 42) == "t-0/00000000000000000042.snapshot"
