"""Snapshot files of producer states: `<20-digit offset>.snapshot`.

With the newest snapshot, opening a log replays only the batches after it. The format is Kafka's
(`ProducerStateManager`): version 1, a checksum of the rest, and one entry per producer with its last batch. Kafka loses
the four batches before the last one in a restart. This format appends them after the entries: the checksum covers them,
and Kafka's reader ignores them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from anabranch.broker.storage.producer_state import NO_OFFSET, BatchMetadata, ProducerEntry
from anabranch.protocol.records.batch import NO_SEQUENCE, SEQUENCES
from anabranch.protocol.records.crc32c import crc32c

SUFFIX: Final = ".snapshot"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_EARLIER: Final = struct.Struct(">qiqiq")  # producer id, last sequence, last offset, offset delta, timestamp


def snapshot_path(directory: str, offset: int) -> str:
    """Return the path of the snapshot at an offset."""
    return f"{directory}/{offset:020d}{SUFFIX}"


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Encode the content of a snapshot."""
    known = list(entries)
    parts = [_COUNT.pack(len(known))]
    for entry in known:
        last = entry.batches[-1] if entry.batches else None
        parts.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                NO_SEQUENCE if last is None else last.last_sequence,
                NO_OFFSET if last is None else last.last_offset,
                0 if last is None else last.last_offset - last.first_offset,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.transaction_start,
            )
        )
    earlier = [(entry.producer_id, batch) for entry in known for batch in list(entry.batches)[:-1]]
    parts.append(_COUNT.pack(len(earlier)))
    parts += [
        _EARLIER.pack(
            producer_id,
            batch.last_sequence,
            batch.last_offset,
            batch.last_offset - batch.first_offset,
            batch.timestamp_ms,
        )
        for producer_id, batch in earlier
    ]
    body = b"".join(parts)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    """Decode a snapshot of this project or of Kafka. Raises ValueError."""
    try:
        version, checksum = _HEAD.unpack_from(content)
        if version != _VERSION or checksum != crc32c(content[_HEAD.size :]):
            raise ValueError(f"a producer snapshot of version {version} with another checksum than {checksum:08x}")
        position = _HEAD.size + _COUNT.size
        (count,) = _COUNT.unpack_from(content, _HEAD.size)
        entries: dict[int, ProducerEntry] = {}
        lasts: dict[int, BatchMetadata] = {}
        for _ in range(count):
            producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, start = _ENTRY.unpack_from(
                content, position
            )
            position += _ENTRY.size
            entry = entries[producer_id] = ProducerEntry(producer_id)
            entry.epoch, entry.coordinator_epoch = epoch, coordinator_epoch
            entry.last_timestamp_ms, entry.transaction_start = timestamp_ms, start
            if offset >= 0:
                lasts[producer_id] = _batch(sequence, offset, delta, timestamp_ms)
        if position < len(content):
            for producer_id, *fields in _EARLIER.iter_unpack(content[position + _COUNT.size :]):
                entries[producer_id].batches.append(_batch(*fields))
        for producer_id, last in lasts.items():
            entries[producer_id].batches.append(last)
    except (struct.error, KeyError) as reason:
        raise ValueError(f"a producer snapshot that ends early: {reason}") from None
    return list(entries.values())


def _batch(last_sequence: int, last_offset: int, delta: int, timestamp_ms: int) -> BatchMetadata:
    return BatchMetadata(
        (last_sequence - delta) % SEQUENCES, last_sequence, last_offset - delta, last_offset, timestamp_ms
    )
