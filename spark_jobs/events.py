"""Decodes audit events into columns: thousands of runs at once, without a Python object per event.

The layout is `protocol.audit`'s. Events keep the order of the given runs, and their order within a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.protocol import audit as wire
from anabranch.protocol.audit import Place, Sender
from anabranch.protocol.errors import DecodeError

Ints = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint64]

_EVENT: Final = np.dtype(
    [
        ("offset", "<i8"),
        ("producer", ">u8"),
        ("sequence", ">u8"),
        ("fingerprint", "<u8"),
        ("key", "<u4"),
    ]
)
_KEY: Final = np.dtype([("number", "<u4"), ("hash", "<u4"), ("length", "<u4")])
assert (_EVENT.itemsize, _KEY.itemsize) == (wire.EVENT.size, wire.KEY.size), "the dtypes are the wire format's"


@dataclass(frozen=True, slots=True)
class Events:
    """Deliveries, one array per field; all arrays have the same length."""

    senders: list[Sender]
    """Group, member, topic, incarnation and group generation: few, and indexed by `sender`."""
    sender: Ints
    number: Ints
    """The number of each event within its incarnation and bucket; -1 in version 1."""
    generation: Ints
    partition: Ints
    offset: Ints
    time_ms: Ints
    begin_number: Ints
    """The begin number of its incarnation for the partition; -1 in version 1."""
    producer: Unsigned
    sequence: Unsigned
    fingerprint: Unsigned
    key_hash: Ints
    key_lengths: Ints
    """The length of each key in bytes; -1 for a null key."""
    key_bytes: bytes
    """The concatenated bytes of all keys."""

    def __len__(self) -> int:
        return len(self.offset)

    def keys(self) -> list[bytes | None]:
        """Return the key of every event."""
        ends = np.cumsum(np.maximum(self.key_lengths, 0)).tolist()
        data, begin, found = self.key_bytes, 0, []
        for end, length in zip(ends, self.key_lengths.tolist(), strict=True):
            found.append(None if length < 0 else data[begin:end])
            begin = end
        return found

    def key_column(self) -> pa.Array:
        """Return the keys as an Arrow array, without a copy per key."""
        ends = np.zeros(len(self) + 1, np.int32)
        np.cumsum(np.maximum(self.key_lengths, 0), out=ends[1:])
        present = pa.array(self.key_lengths >= 0).buffers()[1]
        buffers = [present, pa.py_buffer(ends), pa.py_buffer(self.key_bytes)]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers)


def read(values: Iterable[bytes], keys: Iterable[bytes | None]) -> Events:
    """Read the events of audit records, from their values and keys. Raises DecodeError for an invalid record."""
    senders: dict[Sender, int] = {}
    rows: list[bytes] = []
    keys_of: list[Ints] = []
    table: list[bytes] = []
    key_bytes: list[bytes] = []
    places: list[Place] = []
    runs: list[tuple[int, int, int]] = []  # sender, first number, events
    known = 0
    for run in _as_runs(values, keys):
        layout = wire.read_layout(run)
        rows.append(run[layout.events_at : layout.key_table_at])
        table.append(run[layout.key_table_at + wire.KEY_COUNT.size : layout.keys_at])
        key_bytes.append(run[layout.keys_at :])
        keys_of.append(_key_indexes(rows[-1], table[-1], len(key_bytes[-1]), known))
        known += layout.keys
        places += layout.places
        runs.append((senders.setdefault(layout.sender, len(senders)), layout.number, layout.events))
    fixed = np.frombuffer(b"".join(rows), _EVENT)
    of_place = np.array(places, np.int64).reshape(-1, len(Place._fields))
    spots = np.repeat(of_place, of_place[:, 3], axis=0)
    index = np.concatenate([_NOTHING, *keys_of])
    key_table = np.frombuffer(b"".join(table), _KEY)
    return Events(
        senders=list(senders),
        sender=np.repeat(*_pair([(sender, count) for sender, _, count in runs])),
        number=_numbers([(number, count) for _, number, count in runs]),
        generation=spots[:, 0],
        partition=spots[:, 1],
        time_ms=spots[:, 2],
        begin_number=spots[:, 4],
        offset=fixed["offset"].astype(np.int64),
        producer=fixed["producer"].astype(np.uint64),
        sequence=fixed["sequence"].astype(np.uint64),
        fingerprint=fixed["fingerprint"].astype(np.uint64),
        key_hash=np.where(index < 0, spots[:, 1] & 0x7FFFFFFF, _at(key_table["hash"], index)),
        key_lengths=np.where(index < 0, -1, _at(key_table["length"], index)),
        key_bytes=_each(b"".join(key_bytes), key_table["length"], index),
    )


_NOTHING: Final = np.zeros(0, np.int64)


def _key_indexes(events: bytes, table: bytes, key_bytes: int, first: int) -> Ints:
    """Return each event's key index in a run, counted from `first`; -1 for none. Raises DecodeError."""
    numbers = np.frombuffer(events, _EVENT)["key"]
    keys = np.frombuffer(table, _KEY)
    if np.any(keys["number"][1:] <= keys["number"][:-1]) or int(keys["length"].sum(dtype=np.int64)) != key_bytes:
        raise DecodeError(f"audit run: its {len(keys)} keys are in disorder or do not fill {key_bytes} bytes")
    found = np.searchsorted(keys["number"], numbers)
    keyed = numbers != wire.NO_KEY
    if np.any(keyed & (_at(keys["number"], np.where(found < len(keys), found, -1)) != numbers)):
        raise DecodeError("audit run: an event names a key that does not exist")
    if len(numbers) > 1 and int(keys["length"][found[keyed]].sum(dtype=np.int64)) > wire.KEYS_BYTES_MAX:
        raise DecodeError(f"audit run: more than {wire.KEYS_BYTES_MAX} bytes of repeated keys")
    return np.where(keyed, found + first, -1)


def _at(column: npt.NDArray[np.uint32], index: Ints) -> Ints:
    """Return the values at these places; -1 without a place."""
    return np.append(column.astype(np.int64), -1)[index]


def _each(keys: bytes, lengths: npt.NDArray[np.uint32], index: Ints) -> bytes:
    """Concatenate the keys at these places; nothing without a place."""
    sizes = np.append(lengths.astype(np.int64), 0)
    begins = np.cumsum(sizes) - sizes
    taken = sizes[index]
    shift = begins[index] - (np.cumsum(taken) - taken)
    return np.frombuffer(keys, np.uint8)[np.repeat(shift, taken) + np.arange(int(taken.sum()))].tobytes()


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
    """Return consecutive numbers for each run, from its first; -1 throughout without numbers."""
    first, counts = _pair(rows)
    begins = np.cumsum(counts) - counts
    numbers = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(begins - first, counts)
    return np.where(np.repeat(first, counts) < 0, wire.NO_NUMBER, numbers)
