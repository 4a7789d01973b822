"""Stored records that wait for their delivery to each group, and deliveries that wait for their stored record.

A stored record waits here until it is delivered to every group. Its first delivery to each group is compared with it;
records that still wait at the end of the audit are lost. Deliveries wait, too, for records that the audit has not read
yet. So the state is as large as the lag of the slowest group, 60 bytes and the key for each record.

The groups are configured (`name`), or those with a delivery. In the latter case a group whose first delivery comes
after a record was dropped cannot be judged: it ends the audit (`is_late`), because an audit that reads everything at
once would have compared it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from anabranch.spark_jobs.columns import Column

GROUPS_MAX: Final = 63
_OFFSET_BITS: Final = 40
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1

STORED_FIELDS: Final = {
    "at": np.int64,  # partition and offset
    "fingerprint": np.uint64,
    "producer": np.uint64,
    "sequence": np.int64,
    "groups": np.uint64,  # groups with a delivery, one bit each
}
HANDED_FIELDS: Final = {
    "at": np.int64,
    "fingerprint": np.uint64,
    "producer": np.uint64,
    "newest": np.int64,  # its sequence; these names are those of `lines.PLACE`
    "partition": np.int32,
    "generation": np.int32,
    "offset": np.int64,
    "time_ms": np.int64,
    "sender": np.int32,
    "name": np.int32,
}


class LateGroup(RuntimeError):
    """A group's first delivery came after records for it were dropped; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Records of the audited topic, one array per field; in the order of their offsets in each partition."""

    partition: Column
    offset: Column
    producer: Column
    sequence: Column
    """-1 if the producer does not number."""
    fingerprint: Column
    keys: Sequence[bytes | None]

    def __len__(self) -> int:
        return len(self.offset)


class Undelivered(NamedTuple):
    """A stored record that was not delivered to a group."""

    partition: int
    offset: int
    producer: int
    sequence: int
    key: bytes | None


class Table:
    """Columns with a key per row, optionally sorted by a column."""

    def __init__(self, kinds: Mapping[str, Any]) -> None:
        self.columns: dict[str, Column] = {name: np.zeros(0, kind) for name, kind in kinds.items()}
        self.keys: list[bytes | None] = []

    def __len__(self) -> int:
        return len(self.keys)

    def extend(self, columns: Mapping[str, Column], keys: Sequence[bytes | None]) -> None:
        """Append rows."""
        for name, column in self.columns.items():
            self.columns[name] = np.concatenate([column, columns[name].astype(column.dtype)])
        self.keys += keys

    def choose(self, rows: Column) -> None:
        """Keep these rows, in this order: row numbers, or a mask."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        self.columns = {name: column[rows] for name, column in self.columns.items()}
        self.keys = [self.keys[row] for row in rows.tolist()]

    def pack(self, prefix: str) -> dict[str, Column]:
        """Pack for the state store."""
        lengths = np.array([-1 if key is None else len(key) for key in self.keys], np.int32)
        arena = np.frombuffer(b"".join(key or b"" for key in self.keys), np.uint8)
        return {
            **{f"{prefix}_{name}": column for name, column in self.columns.items()},
            f"{prefix}_lengths": lengths,
            f"{prefix}_arena": arena,
        }

    def load(self, prefix: str, columns: Mapping[str, Column]) -> None:
        """Restore from `pack`."""
        self.columns = {name: columns[f"{prefix}_{name}"] for name in self.columns}
        arena, begin = columns[f"{prefix}_arena"].tobytes(), 0
        for length in columns[f"{prefix}_lengths"].tolist():
            self.keys.append(None if length < 0 else arena[begin : begin + length])
            begin += max(0, length)


@dataclass(slots=True)
class Pending:
    """Records that wait for deliveries, and deliveries that wait for records."""

    stored: Table = field(default_factory=lambda: Table(STORED_FIELDS))
    handed: Table = field(default_factory=lambda: Table(HANDED_FIELDS))
    read_to: dict[int, int] = field(default_factory=dict)
    """Partition -> highest offset of a stored record."""
    groups: list[int] = field(default_factory=list)
    """The groups that records wait for, as indexes of the bucket's names; its position is the group's bit."""
    named: bool = False
    """Whether the groups are configured, so that no other one counts."""
    given_up: bool = False
    """Whether any record was dropped, because it was delivered to every group."""
    keep: bool = False
    """Drop no record: a batch audit knows all groups only after all buckets are read."""

    def name(self, names: Sequence[int]) -> None:
        """Set the groups that records wait for, before the first record."""
        self.groups, self.named = list(names), True
        self._limit()

    def is_late(self, name: int | None) -> bool:
        """Whether a group was unknown when records were dropped, so that its deliveries of them cannot be compared."""
        return self.given_up and not self.named and name not in self.groups

    def store(self, stored: Stored) -> None:
        """Add records of the audited topic."""
        if not len(stored):
            return
        columns = {
            "at": _at(stored.partition, stored.offset),
            "fingerprint": stored.fingerprint,
            "producer": stored.producer,
            "sequence": stored.sequence,
            "groups": np.zeros(len(stored), np.uint64),
        }
        self.stored.extend(columns, stored.keys)
        self.stored.choose(np.argsort(self.stored.columns["at"], kind="stable"))
        for partition in np.unique(stored.partition).tolist():
            highest = int(stored.offset[stored.partition == partition].max())
            self.read_to[partition] = max(highest, self.read_to.get(partition, -1))

    def hand(self, columns: Mapping[str, Column], keys: Sequence[bytes | None]) -> None:
        """Add deliveries to groups that are not late, with the fields of `HANDED_FIELDS` except `at`."""
        at = _at(columns["partition"], columns["offset"])
        self.handed.extend({**columns, "at": at}, keys)
        for name in np.unique(columns["name"]).tolist():
            if name not in self.groups:
                self.groups.append(name)
        self._limit()

    def compare(self) -> Iterator[tuple[int, int]]:
        """Match deliveries with records: yield (row of `handed`, the record's fingerprint) where they differ.

        The rows are valid until the iterator ends.
        """
        handed, stored = self.handed.columns, self.stored.columns
        if len(self.handed):
            waits = np.zeros(len(self.handed), np.bool_)
            groups = stored["groups"].copy()
            for bit, name in enumerate(self.groups):
                mine = np.flatnonzero(handed["name"] == name)
                if not len(mine):
                    continue
                _, first = np.unique(handed["at"][mine], return_index=True)
                mine = mine[first]
                row = _search(stored["at"], handed["at"][mine])
                flag = np.uint64(1 << bit)
                known = row >= 0
                fresh = known.copy()
                fresh[known] = (groups[row[known]] & flag) == 0
                wrong = fresh.copy()
                wrong[fresh] = handed["fingerprint"][mine[fresh]] != stored["fingerprint"][row[fresh]]
                for number, its_row in zip(mine[wrong].tolist(), row[wrong].tolist(), strict=True):
                    yield number, int(stored["fingerprint"][its_row])
                groups[row[known]] |= flag
                waits[mine[~known]] = True
            stored["groups"] = groups
            waits &= handed["offset"] > np.array(
                [self.read_to.get(partition, -1) for partition in handed["partition"].tolist()], np.int64
            )
            self.handed.choose(waits)
        everyone = np.uint64((1 << len(self.groups)) - 1)
        if self.groups and len(self.stored) and not self.keep:
            waits = self.stored.columns["groups"] != everyone
            self.given_up = self.given_up or not waits.all()
            self.stored.choose(waits)

    def undelivered_records(self, name: int | None) -> list[Undelivered]:
        """Return the records not delivered to a group; all if it has no delivery in this bucket (None)."""
        columns = self.stored.columns
        rows = np.arange(len(self.stored))
        if name in self.groups:
            rows = np.flatnonzero((columns["groups"] & np.uint64(1 << self.groups.index(name))) == 0)
        return [
            Undelivered(
                int(columns["at"][row]) >> _OFFSET_BITS,
                int(columns["at"][row]) & _OFFSET_MASK,
                int(columns["producer"][row]),
                int(columns["sequence"][row]),
                self.stored.keys[row],
            )
            for row in rows.tolist()
        ]

    def waiting(self, name: int | None) -> int:
        """Return how many stored records are not delivered to a group yet."""
        if name not in self.groups:
            return len(self.stored)
        flag = np.uint64(1 << self.groups.index(name))
        return int(((self.stored.columns["groups"] & flag) == 0).sum())

    def count_passed(self, name: int, read_to: Mapping[int, int]) -> int:
        """Return how many of these are before the group's delivered offsets, by partition."""
        flag = np.uint64(1 << self.groups.index(name))
        at = self.stored.columns["at"][(self.stored.columns["groups"] & flag) == 0]
        partitions, which = np.unique(at >> _OFFSET_BITS, return_inverse=True)
        ends = np.array([read_to.get(one, 0) for one in partitions.tolist()], np.int64)
        return int(((at & _OFFSET_MASK) < ends[which]).sum()) if len(at) else 0

    def columns(self) -> dict[str, Column]:
        """Return the columns for the state store."""
        return {**self.stored.pack("stored"), **self.handed.pack("handed")}

    def small(self) -> Any:
        """Return the remaining state as JSON."""
        return {
            "read_to": list(self.read_to.items()),
            "groups": self.groups,
            "named": self.named,
            "given_up": self.given_up,
        }

    @classmethod
    def of(cls, columns: Mapping[str, Column], small: Any) -> Pending:
        """Restore from `columns` and `small`."""
        made = cls(
            read_to=dict(small["read_to"]), groups=small["groups"], named=small["named"], given_up=small["given_up"]
        )
        made.stored.load("stored", columns)
        made.handed.load("handed", columns)
        return made

    def _limit(self) -> None:
        if len(self.groups) > GROUPS_MAX:
            raise OverflowError(f"more than {GROUPS_MAX} groups read one topic: name fewer of them with --group")


def _at(partition: Column, offset: Column) -> Column:
    return (partition.astype(np.int64) << _OFFSET_BITS) | offset.astype(np.int64)


def _search(sorted_column: Column, values: Column) -> Column:
    if not len(sorted_column):
        return np.full(len(values), -1, np.int64)
    row = np.minimum(np.searchsorted(sorted_column, values), len(sorted_column) - 1)
    return np.where(sorted_column[row] == values, row, -1)
