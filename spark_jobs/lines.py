"""The progress of each line, as columns: a line is one key of one producer and topic in one group.

A line is found by 128 bits of hash, of which 64 sort it; two lines with the same 64 bits end the audit with an error
rather than being judged as one. Lines without recent deliveries keep only their last place (`quiet`): enough to judge
later deliveries, in 48 bytes instead of about a hundred; only the story is shorter then. Those that stay quiet are
forgotten in the end: the producer is part of a line, and each restart of one is another producer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.spark_jobs.columns import Column, Ragged

FIELDS: Final = {
    "newest": np.int64,  # sequence of the newest delivery; -1 where the producer does not number
    "partition": np.int32,
    "generation": np.int32,
    "offset": np.int64,
    "time_ms": np.int64,
    "sender": np.int32,  # an index of the bucket's senders; -1 when the line was quiet
    "name": np.int32,  # an index of the bucket's names
    "producer": np.uint64,
    "key_at": np.int64,  # where the key begins in the arena
    "key_length": np.int32,  # -1 for a null key
    "heard_ms": np.int64,  # the bucket's event time of its last event: no clock of one member
}
QUIET_FIELDS: Final = ("newest", "partition", "generation", "offset", "heard_ms")
PLACE: Final = ("newest", "partition", "generation", "offset", "time_ms", "sender")
"""The fields of a line that each delivery changes."""
SKIPPED: Final = ("first", "last", "told", *PLACE, *(f"before_{name}" for name in PLACE))
"""Skipped sequences, whether they were reported as lost, the delivery that skipped them, and the one before it: all -1
if that was the first."""
_SENDERS: Final = [SKIPPED.index("sender"), SKIPPED.index("before_sender")]

_MULTIPLIERS: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class HashCollision(RuntimeError):
    """Two lines have the same 64 bits of hash, so the audit cannot distinguish them and must end."""


class Lines:
    """The lines of a bucket, sorted by hash."""

    def __init__(self) -> None:
        self.first = np.zeros(0, np.uint64)
        """The first 64 bits of each line's hash, by which lines are sorted and found."""
        self.second = np.zeros(0, np.uint64)
        self.fields: dict[str, Column] = {name: np.zeros(0, kind) for name, kind in FIELDS.items()}
        self.quiet_first = np.zeros(0, np.uint64)
        self.quiet_second = np.zeros(0, np.uint64)
        self.quiet: dict[str, Column] = {name: np.zeros(0, FIELDS[name]) for name in QUIET_FIELDS}
        self.arena = b""
        self.former = Ragged.empty(2)
        """Per line: (partition, highest offset read there), of partitions other than the newest delivery's, and of its
        own if the newest delivery is not the highest offset."""
        self.began = Ragged.empty(1)
        """Per line: its first sequence, if earlier ones may have been forgotten."""
        self.skipped = Ragged.empty(len(SKIPPED))
        """Per line: as in `SKIPPED`."""

    def __len__(self) -> int:
        return len(self.first)

    def find(self, first: Column, second: Column) -> Column:
        """Return the row of each line, -1 for none. Quiet lines become active again."""
        at = _search(self.first, self.second, first, second)
        if len(self.quiet_first) and (at < 0).any():
            back = _search(self.quiet_first, self.quiet_second, first, second)
            back = np.unique(back[(at < 0) & (back >= 0)])
            if len(back):
                self._wake(back)
                at = _search(self.first, self.second, first, second)
        return at

    def add(self, first: Column, second: Column, values: Mapping[str, Column], keys: Sequence[bytes | None]) -> None:
        """Add lines, with all fields except the key's. Invalidates rows that `find` returned before."""
        lengths = np.array([-1 if key is None else len(key) for key in keys], np.int32)
        sizes = np.maximum(lengths, 0).astype(np.int64)
        placed = {**values, "key_at": len(self.arena) + np.cumsum(sizes) - sizes, "key_length": lengths}
        self.arena += b"".join(key or b"" for key in keys)
        self._merge(first, second, placed)

    def name_again(self, rows: Column, names: Column, producers: Column, keys: Sequence[bytes | None]) -> None:
        """Set the names, producers and keys of quiet lines, from their new events."""
        lengths = np.array([-1 if key is None else len(key) for key in keys], np.int32)
        sizes = np.maximum(lengths, 0).astype(np.int64)
        self.fields["name"][rows], self.fields["producer"][rows] = names, producers
        self.fields["key_at"][rows], self.fields["key_length"][rows] = (
            len(self.arena) + np.cumsum(sizes) - sizes,
            lengths,
        )
        self.arena += b"".join(key or b"" for key in keys)

    def update(self, rows: Column, values: Mapping[str, Column]) -> None:
        """Update existing lines with newer deliveries."""
        for name, column in values.items():
            self.fields[name][rows] = column

    def key(self, row: int) -> bytes | None:
        """Return the key of a line; None also if it was quiet."""
        length = int(self.fields["key_length"][row])
        begin = int(self.fields["key_at"][row])
        return None if length < 0 else self.arena[begin : begin + length]

    def fall_quiet(self, before_ms: int) -> None:
        """Reduce lines to their last place if their newest delivery is older, unless something is missing."""
        old = self.fields["time_ms"] < before_ms
        if not old.any():
            return
        old &= ~self.skipped.has(self.first)
        self.quiet_first = np.concatenate([self.quiet_first, self.first[old]])
        self.quiet_second = np.concatenate([self.quiet_second, self.second[old]])
        for name in QUIET_FIELDS:
            self.quiet[name] = np.concatenate([self.quiet[name], self.fields[name][old]])
        order = np.argsort(self.quiet_first, kind="stable")
        self.quiet_first, self.quiet_second = self.quiet_first[order], self.quiet_second[order]
        self.quiet = {name: column[order] for name, column in self.quiet.items()}
        self._keep(~old)

    def forget(self, before_ms: int, rows: Column) -> int:
        """Drop quiet lines without an event since `before_ms`, and the lines `rows`. Returns their number."""
        old = self.quiet["heard_ms"] < before_ms
        gone = np.concatenate([self.quiet_first[old], self.first[rows]])
        if not len(gone):
            return 0
        self.quiet_first, self.quiet_second = self.quiet_first[~old], self.quiet_second[~old]
        self.quiet = {name: column[~old] for name, column in self.quiet.items()}
        if len(rows):
            self._keep(~np.isin(np.arange(len(self)), rows))
        for ragged in (self.former, self.began, self.skipped):
            for first in gone[ragged.has(gone)].tolist():
                ragged.put(first, [])
        return len(gone)

    def renumber_senders(self, numbers: Column) -> None:
        """Renumber senders: `numbering` has the new index of each old one, and -1 at its end."""
        self.fields["sender"] = numbers[self.fields["sender"]].astype(np.int32)
        keys, rows = self.skipped.columns()
        rows = rows.copy()
        rows[:, _SENDERS] = numbers[rows[:, _SENDERS]]
        self.skipped = Ragged(keys, rows)

    def senders(self) -> Column:
        """Return the sender indexes of all deliveries here, and -1."""
        return np.unique(np.append(self.fields["sender"], self.skipped.columns()[1][:, _SENDERS]))

    def columns(self) -> dict[str, Column]:
        """Return all columns, for packing."""
        former_keys, former = self.former.columns()
        began_keys, began = self.began.columns()
        skipped_keys, skipped = self.skipped.columns()
        return {
            "first": self.first,
            "second": self.second,
            **self.fields,
            "quiet_first": self.quiet_first,
            "quiet_second": self.quiet_second,
            **{f"quiet_{name}": column for name, column in self.quiet.items()},
            "arena": np.frombuffer(self.arena, np.uint8),
            "former_keys": former_keys,
            "former": former.reshape(-1),
            "began_keys": began_keys,
            "began": began.reshape(-1),
            "skipped_keys": skipped_keys,
            "skipped": skipped.reshape(-1),
        }

    @classmethod
    def of(cls, columns: Mapping[str, Column]) -> Lines:
        """Restore lines from `columns`."""
        made = cls()
        made.first, made.second = columns["first"], columns["second"]
        made.fields = {name: columns[name].copy() for name in FIELDS}
        made.quiet_first, made.quiet_second = columns["quiet_first"], columns["quiet_second"]
        made.quiet = {name: columns[f"quiet_{name}"] for name in QUIET_FIELDS}
        made.arena = columns["arena"].tobytes()
        made.former = Ragged(columns["former_keys"], columns["former"].reshape(-1, 2))
        made.began = Ragged(columns["began_keys"], columns["began"].reshape(-1, 1))
        made.skipped = Ragged(columns["skipped_keys"], columns["skipped"].reshape(-1, len(SKIPPED)))
        return made

    def _wake(self, rows: Column) -> None:
        count = len(rows)
        values: dict[str, Any] = {name: np.full(count, -1, kind) for name, kind in FIELDS.items() if kind != np.uint64}
        values |= {"producer": np.zeros(count, np.uint64), "key_at": np.zeros(count, np.int64)}
        values |= {name: column[rows] for name, column in self.quiet.items()}
        self._merge(self.quiet_first[rows], self.quiet_second[rows], values)
        kept = np.ones(len(self.quiet_first), np.bool_)
        kept[rows] = False
        self.quiet_first, self.quiet_second = self.quiet_first[kept], self.quiet_second[kept]
        self.quiet = {name: column[kept] for name, column in self.quiet.items()}

    def _merge(self, first: Column, second: Column, values: Mapping[str, Column]) -> None:
        merged = np.concatenate([self.first, first])
        order = np.argsort(merged, kind="stable")
        self.first = merged[order]
        self.second = np.concatenate([self.second, second])[order]
        for name, kind in FIELDS.items():
            self.fields[name] = np.concatenate([self.fields[name], values[name].astype(kind)])[order]

    def _keep(self, rows: Column) -> None:
        self.first, self.second = self.first[rows], self.second[rows]
        self.fields = {name: column[rows] for name, column in self.fields.items()}
        self._tidy_arena()

    def _tidy_arena(self) -> None:
        keys = [self.key(row) for row in range(len(self))]
        sizes = np.maximum(self.fields["key_length"], 0).astype(np.int64)
        self.arena = b"".join(key or b"" for key in keys)
        self.fields["key_at"] = np.cumsum(sizes) - sizes


def hashes(keys: pa.Array, salts: Column) -> tuple[Column, Column]:
    """Return 128 bits per line, from its key and a salt for its other fields."""
    coded = keys.dictionary_encode("encode")
    digests = b"".join(
        mmh3.mmh3_x64_128_digest(key if key is not None else b"", 0 if key is not None else 1)
        for key in coded.dictionary.to_pylist()
    )
    pairs = np.frombuffer(digests, "<u8").reshape(-1, 2)[coded.indices.to_numpy(zero_copy_only=False)]
    first = mix(pairs[:, 0] ^ mix(salts))
    return first, mix(pairs[:, 1] + first)


def salt(group: str, topic: str, producer: int, partition: int = -1) -> int:
    """Return a number that distinguishes lines of one key. A record without key or number belongs to its partition's
    line.
    """
    return (mmh3.hash64(f"{group}\0{topic}", signed=False)[0] + producer * 3 + partition + 1) & (2**64 - 1)


def line_hash(key: bytes | None, salt: int) -> tuple[Column, Column]:
    """Return the hash of a single line."""
    return hashes(pa.array([key], pa.binary()), np.array([salt], np.uint64))


def mix(column: Column) -> npt.NDArray[np.uint64]:
    """Mix 64 bits so that every bit depends on every other. Source: SplitMix64's finalizer."""
    found = column.astype(np.uint64)
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        found = (found ^ (found >> np.uint64(shift))) * multiplier
    mixed: npt.NDArray[np.uint64] = found ^ (found >> np.uint64(31))
    return mixed


def _search(firsts: Column, seconds: Column, first: Column, second: Column) -> Column:
    if not len(firsts):
        return np.full(len(first), -1, np.int64)
    at = np.minimum(np.searchsorted(firsts, first), len(firsts) - 1)
    found = firsts[at] == first
    if (seconds[at[found]] != second[found]).any():
        raise HashCollision("two keys of the audit have the same hash")
    return np.where(found, at, -1)
