"""What is counted beside the checks: deliveries and stored records over time, and when each segment was handed out.

No state of a key is needed for any of it, so a batch counts its own rows and the driver adds the batches up. Adding is
commutative, and `Ledger` remembers what the newest batch contributed: a batch that runs again after a restart replaces
its own contribution. Time is kept in bins, which widen when there would be too many: an audit that goes on for months
has as many bins as one of ten minutes.

A hand-off is told by the segments alone (`protocol.lineage`): a segment whose keys came from other partitions may be
handed out when all of those were. It takes from the last delivery of theirs to its own first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.lineage import Lineage, Segment

BIN_MS: Final = 500
BINS_MAX: Final = 1200
"""Of one partition. Ten minutes at the finest; as many are plotted."""

Column = npt.NDArray[np.int64]
Place = tuple[str, str, int]
"""Group, topic, partition. The group of what is stored is empty."""
STORED: Final = ""


class Handed(NamedTuple):
    """How much of a segment was handed to a group, and when."""

    records: int
    first_ms: int
    last_ms: int

    def together(self, other: Handed) -> Handed:
        """What two counted of one segment."""
        return Handed(
            self.records + other.records, min(self.first_ms, other.first_ms), max(self.last_ms, other.last_ms)
        )


class HandOff(NamedTuple):
    """Keys that a resize moved: the last of them from the old partitions, the first from the new one."""

    group: str
    topic: str
    sources: tuple[Segment, ...]
    target: Segment
    began_ms: int
    ended_ms: int

    @property
    def kind(self) -> str:
        """Keys go up to a new partition when one splits, and down to a survivor when they merge."""
        return "split" if self.target.partition > self.sources[0].partition else "merge"

    @property
    def took_ms(self) -> int:
        """What the application waited; below zero, it got the younger before the older."""
        return self.ended_ms - self.began_ms


@dataclass(slots=True)
class Tallies:
    """Counts of one batch, or of all."""

    bin_ms: int = BIN_MS
    bins: dict[Place, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """Per place: number of a bin -> records in it."""
    segments: dict[tuple[str, str, Segment], Handed] = field(default_factory=dict)

    def deliver(self, names: Sequence[tuple[str, str]], columns: Mapping[str, Column]) -> None:
        """Count deliveries. `names` are (group, topic). A row of the columns stands for one, or for `count` of them:
        `name`, an index of `names`, `partition`, `generation`, `time_ms`."""
        time_ms = columns["time_ms"]
        count = columns.get("count", np.ones(len(time_ms), np.int64))
        for (number, index, generation), rows in _grouped(columns["name"], columns["partition"], columns["generation"]):
            group, topic = names[number]
            counts, times = count[rows], time_ms[rows]
            where = (group, topic, Segment(index, generation))
            found = Handed(int(counts.sum()), int(times.min()), int(times.max()))
            self._hand(where, found)
            self._count((group, topic, index), times, counts)
        self._narrow()

    def store(self, topic: str, partition: Column, time_ms: Column) -> None:
        """Count what the audited topic stores, by the times of the records."""
        for (index,), rows in _grouped(partition):
            self._count((STORED, topic, index), time_ms[rows], np.ones(len(rows), np.int64))
        self._narrow()

    def add(self, other: Tallies) -> None:
        """Take in what another one counted."""
        self._widen(other.bin_ms)
        factor = self.bin_ms // other.bin_ms
        for place, bins in other.bins.items():
            _add_bins(self.bins[place], ((number // factor, count) for number, count in bins.items()))
        for where, handed in other.segments.items():
            self._hand(where, handed)
        self._narrow()

    def series(self, group: str, topic: str) -> dict[int, list[tuple[int, int]]]:
        """Partition -> (start of a bin in ms, records in it), without gaps from the first to the last of all."""
        found = {place[2]: bins for place, bins in self.bins.items() if place[:2] == (group, topic) and bins}
        numbers = [number for bins in found.values() for number in bins]
        return {
            index: [(n * self.bin_ms, bins.get(n, 0)) for n in range(min(numbers), max(numbers) + 1)]
            for index, bins in sorted(found.items())
        }

    def audiences(self) -> list[tuple[str, str]]:
        """Each (group, topic) to which anything was delivered."""
        return sorted({(group, topic) for group, topic, _ in self.segments})

    def hand_offs(self, group: str, topic: str, lineage: Lineage) -> list[HandOff]:
        """Every split and merge whose keys were delivered on both sides, in the order in which they ended."""
        known = {one[2]: handed for one, handed in self.segments.items() if one[:2] == (group, topic)}
        found = []
        for segment in known:
            if segment.generation not in {generation for generation, _ in lineage.history}:
                continue  # from a time that the lineage does not tell of
            sources = [one for one in _delivered_before(lineage, segment, known) if one.partition != segment.partition]
            if sources:
                began_ms = max(known[one].last_ms for one in sources)
                found.append(HandOff(group, topic, tuple(sources), segment, began_ms, known[segment].first_ms))
        return sorted(found, key=lambda one: (one.ended_ms, one.target))

    def as_json(self) -> dict[str, Any]:
        """For a file, or a row of the query."""
        return {
            "bin_ms": self.bin_ms,
            "bins": [[*place, sorted(bins.items())] for place, bins in sorted(self.bins.items())],
            "segments": [
                [group, topic, segment.partition, segment.generation, *handed]
                for (group, topic, segment), handed in sorted(self.segments.items())
            ],
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Tallies:
        """What `as_json` gave."""
        made = cls(bin_ms=found["bin_ms"])
        for group, topic, partition, bins in found["bins"]:
            made.bins[group, topic, partition] = dict(bins)
        for group, topic, partition, generation, *handed in found["segments"]:
            made.segments[group, topic, Segment(partition, generation)] = Handed(*handed)
        return made

    def _hand(self, where: tuple[str, str, Segment], handed: Handed) -> None:
        known = self.segments.get(where)
        self.segments[where] = handed if known is None else known.together(handed)

    def _count(self, place: Place, times: Column, counts: Column) -> None:
        numbers, which = np.unique(times // self.bin_ms, return_inverse=True)
        sums = np.bincount(which, weights=counts).astype(np.int64)
        _add_bins(self.bins[place], zip(numbers.tolist(), sums.tolist(), strict=True))

    def _narrow(self) -> None:
        """Widen the bins until each place has few enough of them, empty ones between included."""
        while any(bins and max(bins) - min(bins) >= BINS_MAX for bins in self.bins.values()):
            self._widen(self.bin_ms * 2)

    def _widen(self, bin_ms: int) -> None:
        if bin_ms <= self.bin_ms:
            return
        factor = bin_ms // self.bin_ms
        for place, bins in self.bins.items():
            wider: dict[int, int] = {}
            _add_bins(wider, ((number // factor, count) for number, count in bins.items()))
            self.bins[place] = wider
        self.bin_ms = bin_ms


@dataclass(slots=True)
class Ledger:
    """The tallies of all batches so far; a batch that comes twice counts once."""

    batch: int = -1
    """The newest one."""
    before: Tallies = field(default_factory=Tallies)
    """Of all batches before it."""
    newest: Tallies = field(default_factory=Tallies)

    def take(self, batch: int, tallies: Iterable[Tallies]) -> None:
        """What a batch counted, from all its tasks."""
        if batch != self.batch:
            self.before.add(self.newest)
        self.batch, self.newest = batch, Tallies()
        for one in tallies:
            self.newest.add(one)

    def total(self) -> Tallies:
        """Everything."""
        made = Tallies()
        made.add(self.before)
        made.add(self.newest)
        return made

    def as_json(self) -> dict[str, Any]:
        """For the file in which it outlives the driver."""
        return {"batch": self.batch, "before": self.before.as_json(), "newest": self.newest.as_json()}

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Ledger:
        """What `as_json` gave."""
        return cls(found["batch"], Tallies.of_json(found["before"]), Tallies.of_json(found["newest"]))


def _delivered_before(lineage: Lineage, segment: Segment, known: Mapping[Segment, Handed]) -> Iterator[Segment]:
    """The nearest segments before this one of which anything was delivered; empty ones are looked through."""
    for one in lineage.predecessors(segment):
        if one in known:
            yield one
            continue
        before = lineage.previous(one)
        if before is not None and before in known:
            yield before
        yield from _delivered_before(lineage, one, known)


def _add_bins(bins: dict[int, int], more: Iterable[tuple[int, int]]) -> None:
    for number, count in more:
        bins[number] = bins.get(number, 0) + count


def _grouped(*columns: Column) -> Iterator[tuple[tuple[int, ...], Column]]:
    """Each combination of values that comes up, and the rows in which it does."""
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
