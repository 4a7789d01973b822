"""Audit events as columns: thousands of runs taken apart at once, without a Python object per event.

The layout is `protocol.audit`'s. Order is kept: events stand as the runs were given, and within a run as they happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from protocol import audit as wire
from protocol.audit import Place, Sender
from protocol.errors import DecodeError

Ints = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint64]

_EVENT: Final = np.dtype(
    [
        ("offset", ">i8"),
        ("producer", ">u8"),
        ("sequence", ">u8"),
        ("fingerprint", "<u8"),
    ]
)
assert _EVENT.itemsize == wire.EVENT.size, "the dtype is the wire format's event"


@dataclass(frozen=True, slots=True)
class Events:
    """Deliveries, one array per field; all arrays have the same length."""

    senders: list[Sender]
    """Group, member, topic, incarnation and generation of the group: few, and named by index in `sender`."""
    sender: Ints
    number: Ints
    """Among the events of its incarnation in its bucket; -1 in version 1."""
    generation: Ints
    partition: Ints
    offset: Ints
    time_ms: Ints
    producer: Unsigned
    sequence: Unsigned
    fingerprint: Unsigned
    key_hash: Ints
    key_lengths: Ints
    """-1 for a null key."""
    key_bytes: bytes
    """All keys in a row."""

    def __len__(self) -> int:
        return len(self.offset)

    def keys(self) -> list[bytes | None]:
        """The key of every event."""
        ends = np.cumsum(np.maximum(self.key_lengths, 0)).tolist()
        data, begin, found = self.key_bytes, 0, []
        for end, length in zip(ends, self.key_lengths.tolist(), strict=True):
            found.append(None if length < 0 else data[begin:end])
            begin = end
        return found

    def key_column(self) -> pa.Array:
        """The keys as Arrow has them, without a copy per key."""
        ends = np.zeros(len(self) + 1, np.int32)
        np.cumsum(np.maximum(self.key_lengths, 0), out=ends[1:])
        present = pa.array(self.key_lengths >= 0).buffers()[1]
        buffers = [present, pa.py_buffer(ends), pa.py_buffer(self.key_bytes)]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers)


def read(values: Iterable[bytes], keys: Iterable[bytes | None]) -> Events:
    """The events of audit records, given their values and keys. DecodeError at the first that is none."""
    senders: dict[Sender, int] = {}
    rows: list[bytes] = []
    sizes: list[Ints] = []
    entries: list[bytes] = []
    places: list[Place] = []
    runs: list[tuple[int, int, int]] = []  # sender, first number, events
    for run in _as_runs(values, keys):
        sender, number, count, its_places, events_at, sizes_at, entries_at = wire.read_layout(run)
        rows.append(run[events_at:sizes_at])
        sizes.append(np.frombuffer(run[sizes_at:entries_at], ">u4").astype(np.int64))
        entries.append(run[entries_at:])
        if int(sizes[-1].sum()) != len(entries[-1]):
            raise DecodeError(f"audit run: the entries of its keys do not fill {len(entries[-1])} bytes")
        places += its_places
        runs.append((senders.setdefault(sender, len(senders)), number, count))
    fixed = np.frombuffer(b"".join(rows), _EVENT)
    of_place = np.array(places, np.int64).reshape(-1, 4)
    spots = np.repeat(of_place, of_place[:, 3], axis=0)
    key_hash, key_lengths, key_bytes = _keys(np.concatenate([_NO_SIZES, *sizes]), b"".join(entries), spots[:, 1])
    return Events(
        senders=list(senders),
        sender=np.repeat(*_pair([(sender, count) for sender, _, count in runs])),
        number=_numbers([(number, count) for _, number, count in runs]),
        generation=spots[:, 0],
        partition=spots[:, 1],
        time_ms=spots[:, 2],
        offset=fixed["offset"].astype(np.int64),
        producer=fixed["producer"].astype(np.uint64),
        sequence=fixed["sequence"].astype(np.uint64),
        fingerprint=fixed["fingerprint"].astype(np.uint64),
        key_hash=key_hash,
        key_lengths=key_lengths,
        key_bytes=key_bytes,
    )


def _keys(sizes: Ints, entries: bytes, partitions: Ints) -> tuple[Ints, Ints, bytes]:
    """Hash and length of every key, and all keys in a row, of their entries in a row."""
    keyed = sizes > 0
    if np.any(keyed & (sizes < wire.HASH_BYTES)):
        raise DecodeError("audit run: a key's entry is shorter than a hash")
    data = np.frombuffer(entries, np.uint8)
    of_hash = (np.cumsum(sizes) - sizes)[keyed, np.newaxis] + np.arange(wire.HASH_BYTES)
    hashes = partitions & 0x7FFFFFFF
    hashes[keyed] = data[of_hash].view(">u4")[:, 0]
    of_key = np.ones(len(data), np.bool_)
    of_key[of_hash] = False
    return hashes, np.where(keyed, sizes - wire.HASH_BYTES, -1), data[of_key].tobytes()


_NO_SIZES: Final = np.zeros(0, np.int64)


def _as_runs(values: Iterable[bytes], keys: Iterable[bytes | None]) -> Iterator[bytes]:
    for value, key in zip(values, keys, strict=True):
        if value[:1] == _RUN_MARK:
            yield value
        elif value[:1] == _EVENT_MARK:
            yield wire.encode_events([wire.decode_delivery(value, key)])
        else:
            raise DecodeError(f"not an audit event, so this is not an audit topic: {value[:64].hex()}")


_RUN_MARK: Final = bytes((wire.RUN_VERSION,))
_EVENT_MARK: Final = bytes((wire.VERSION,))


def _pair(rows: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
    columns = np.array(rows, np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


def _numbers(rows: Sequence[tuple[int, int]]) -> Ints:
    """The first number of each run, and those that follow it; -1 throughout where events are not numbered."""
    first, counts = _pair(rows)
    begins = np.cumsum(counts) - counts
    numbers = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(begins - first, counts)
    return np.where(np.repeat(first, counts) < 0, wire.NO_NUMBER, numbers)
