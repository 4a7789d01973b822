"""Counts beside the checks: deliveries and stored records over time, and the delivery period of each key epoch.

They need no state per key, so a batch counts its own rows and the driver adds the batches up. Addition is commutative,
and `Ledger` keeps the newest batch's contribution: a batch that runs again after a restart replaces it. Time is in
bins, which widen when there would be too many: an audit of months has as many bins as one of ten minutes, and producers
may set any timestamps.

Hand-offs follow from the key epochs alone (`protocol.lineage`): a key epoch whose keys came from other partitions may
be delivered when all of those were. A hand-off lasts from the last delivery of those to its own first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from anabranch.protocol.lineage import KeyEpoch, Lineage

BIN_MS: Final = 500
BINS_MAX: Final = 1200
"""The maximum number of bins of a partition: ten minutes at the finest width."""

Column = npt.NDArray[np.int64]
Place = tuple[str, str, int]
"""Group, topic, partition. The group of stored records is empty."""
STORED: Final = ""


class Handed(NamedTuple):
    """How many records of a key epoch were delivered to a group, and when the first and the last."""

    records: int
    first_ms: int
    last_ms: int

    def together(self, other: Handed) -> Handed:
        """Return the sum of two counts of the same key epoch."""
        return Handed(
            self.records + other.records, min(self.first_ms, other.first_ms), max(self.last_ms, other.last_ms)
        )


class HandOff(NamedTuple):
    """Keys moved by a resize: their last delivery from the old partitions, and the first from the new one."""

    group: str
    topic: str
    sources: tuple[KeyEpoch, ...]
    target: KeyEpoch
    began_ms: int
    ended_ms: int

    @property
    def kind(self) -> str:
        """Return "split" (keys move to a new partition) or "merge" (keys move to a merge target)."""
        return "split" if self.target.partition > self.sources[0].partition else "merge"

    @property
    def took_ms(self) -> int:
        """How long the application received none of these keys; negative if it got newer records before older."""
        return self.ended_ms - self.began_ms


@dataclass(slots=True)
class Bins:
    """Records over time at one place. The bins widen when there would be too many, counting empty ones in between."""

    bin_ms: int = BIN_MS
    counts: dict[int, int] = field(default_factory=dict)
    """Number of a bin -> records in it."""

    def count(self, times: Column, counts: Column) -> None:
        """Count `counts` records at the times `times`, in ms."""
        numbers, which = np.unique(times // self.bin_ms, return_inverse=True)
        sums = np.bincount(which, weights=counts).astype(np.int64)
        self._add(zip(numbers.tolist(), sums.tolist(), strict=True))
        self.narrow()

    def add(self, other: Bins) -> None:
        """Add another's counts."""
        self.widen(other.bin_ms)
        factor = self.bin_ms // other.bin_ms
        self._add((number // factor, count) for number, count in other.counts.items())
        self.narrow()

    def narrow(self) -> None:
        """Widen the bins until there are at most `BINS_MAX`."""
        while self.counts and max(self.counts) - min(self.counts) >= BINS_MAX:
            self.widen(self.bin_ms * 2)

    def widen(self, bin_ms: int) -> None:
        """Make the bins at least `bin_ms` wide."""
        if bin_ms > self.bin_ms:
            factor, self.bin_ms, before = bin_ms // self.bin_ms, bin_ms, self.counts
            self.counts = {}
            self._add((number // factor, count) for number, count in before.items())

    def _add(self, more: Iterable[tuple[int, int]]) -> None:
        for number, count in more:
            self.counts[number] = self.counts.get(number, 0) + count


class Series(NamedTuple):
    """Records over time in the partitions of a topic."""

    bin_ms: int
    partitions: dict[int, list[tuple[int, int]]]
    """Partition -> (start of a bin in ms, records in it), without gaps from the first to the last bin of all."""


@dataclass(slots=True)
class Tallies:
    """The counts of one batch, or the sum over all batches."""

    bins: dict[Place, Bins] = field(default_factory=lambda: defaultdict(Bins))
    key_epochs: dict[tuple[str, str, KeyEpoch], Handed] = field(default_factory=dict)

    def deliver(self, names: Sequence[tuple[str, str]], columns: Mapping[str, Column]) -> None:
        """Count deliveries. `names` are (group, topic). A row of the columns counts as one, or as `count` of them:
        `name`, an index of `names`, `partition`, `generation`, `time_ms`.
        """
        time_ms = columns["time_ms"]
        count = columns.get("count", np.ones(len(time_ms), np.int64))
        for (number, index, generation), rows in _group(columns["name"], columns["partition"], columns["generation"]):
            group, topic = names[number]
            counts, times = count[rows], time_ms[rows]
            where = (group, topic, KeyEpoch(index, generation))
            found = Handed(int(counts.sum()), int(times.min()), int(times.max()))
            self._hand(where, found)
            self.bins[group, topic, index].count(times, counts)

    def store(self, topic: str, partition: Column, time_ms: Column) -> None:
        """Count stored records of the audited topic, by their times."""
        for (index,), rows in _group(partition):
            self.bins[STORED, topic, index].count(time_ms[rows], np.ones(len(rows), np.int64))

    def add(self, other: Tallies) -> None:
        """Add another's counts."""
        for place, bins in other.bins.items():
            self.bins[place].add(bins)
        for where, handed in other.key_epochs.items():
            self._hand(where, handed)

    def series(self, group: str, topic: str) -> Series:
        """Return the deliveries to a group over time; for the empty group, the stored records."""
        found = {place[2]: bins for place, bins in self.bins.items() if place[:2] == (group, topic) and bins.counts}
        together = {index: Bins(max(bins.bin_ms for bins in found.values())) for index in sorted(found)}
        for index, bins in together.items():
            bins.add(found[index])
        width = max((bins.bin_ms for bins in together.values()), default=BIN_MS)
        times = [number * bins.bin_ms for bins in together.values() for number in bins.counts]
        while times and max(times) // width - min(times) // width >= BINS_MAX:
            width *= 2  # the times of one partition may be far from those of another
        for bins in together.values():
            bins.widen(width)
        numbers = [number for bins in together.values() for number in bins.counts]
        return Series(
            width,
            {
                index: [(n * width, bins.counts.get(n, 0)) for n in range(min(numbers), max(numbers) + 1)]
                for index, bins in together.items()
            },
        )

    def audiences(self) -> list[tuple[str, str]]:
        """Return each (group, topic) with a delivery."""
        return sorted({(group, topic) for group, topic, _ in self.key_epochs})

    def hand_offs(self, group: str, topic: str, lineage: Lineage) -> list[HandOff]:
        """Return every split and merge whose keys were delivered on both sides, in the order in which they ended."""
        known = {one[2]: handed for one, handed in self.key_epochs.items() if one[:2] == (group, topic)}
        found = []
        for key_epoch in known:
            if key_epoch.generation not in {generation for generation, _ in lineage.history}:
                continue  # from before the known lineage
            sources = [
                one for one in _delivered_before(lineage, key_epoch, known) if one.partition != key_epoch.partition
            ]
            if sources:
                began_ms = max(known[one].last_ms for one in sources)
                found.append(HandOff(group, topic, tuple(sources), key_epoch, began_ms, known[key_epoch].first_ms))
        return sorted(found, key=lambda one: (one.ended_ms, one.target))

    def as_json(self) -> dict[str, Any]:
        """Convert to JSON, for a file or a row of the query."""
        return {
            "bins": [[*place, bins.bin_ms, sorted(bins.counts.items())] for place, bins in sorted(self.bins.items())],
            "key_epochs": [
                [group, topic, key_epoch.partition, key_epoch.generation, *handed]
                for (group, topic, key_epoch), handed in sorted(self.key_epochs.items())
            ],
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Tallies:
        """Restore from `as_json`."""
        made = cls()
        for group, topic, partition, bin_ms, counts in found["bins"]:
            made.bins[group, topic, partition] = Bins(bin_ms, dict(counts))
        for group, topic, partition, generation, *handed in found["key_epochs"]:
            made.key_epochs[group, topic, KeyEpoch(partition, generation)] = Handed(*handed)
        return made

    def _hand(self, where: tuple[str, str, KeyEpoch], handed: Handed) -> None:
        known = self.key_epochs.get(where)
        self.key_epochs[where] = handed if known is None else known.together(handed)


@dataclass(slots=True)
class Ledger:
    """The tallies of all batches so far; a repeated batch counts once."""

    batch: int = -1
    """The number of the newest batch."""
    before: Tallies = field(default_factory=Tallies)
    """The counts of all batches before it."""
    newest: Tallies = field(default_factory=Tallies)

    def take(self, batch: int, tallies: Iterable[Tallies]) -> None:
        """Set the counts of a batch, from all its tasks, in place of its earlier ones."""
        if batch != self.batch:
            self.before.add(self.newest)
        self.batch, self.newest = batch, Tallies()
        for one in tallies:
            self.newest.add(one)

    def total(self) -> Tallies:
        """Return the sum over all batches."""
        made = Tallies()
        made.add(self.before)
        made.add(self.newest)
        return made

    def as_json(self) -> dict[str, Any]:
        """Convert to JSON, for the file that outlives the driver."""
        return {"batch": self.batch, "before": self.before.as_json(), "newest": self.newest.as_json()}

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Ledger:
        """Restore from `as_json`."""
        return cls(found["batch"], Tallies.of_json(found["before"]), Tallies.of_json(found["newest"]))


def _delivered_before(lineage: Lineage, key_epoch: KeyEpoch, known: Mapping[KeyEpoch, Handed]) -> Iterator[KeyEpoch]:
    """Yield the nearest earlier key epochs with deliveries, skipping empty ones."""
    for one in lineage.predecessors(key_epoch):
        if one in known:
            yield one
            continue
        before = lineage.previous(one)
        if before is not None and before in known:
            yield before
        yield from _delivered_before(lineage, one, known)


def _group(*columns: Column) -> Iterator[tuple[tuple[int, ...], Column]]:
    """Yield each distinct combination of values, and its rows."""
    if not len(columns[0]):
        return
    packed = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        lowest = int(column.min())
        packed = packed * (int(column.max()) - lowest + 1) + (column - lowest)
    order = np.argsort(packed, kind="stable")
    starts = np.flatnonzero(np.diff(packed[order], prepend=packed[order[0]] - 1))
    for rows in np.split(order, starts[1:]):
        yield tuple(int(column[rows[0]]) for column in columns), rows
