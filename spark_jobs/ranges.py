"""Computes offsets of batches: the end of the next one, its ranges, and their division into tasks. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.spark_jobs.source_options import Offsets


@dataclass(frozen=True, order=True)
class OffsetRange:
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def records(self) -> int:
        """The maximum number of records in the range."""
        return self.end - self.start


def admit(start: Offsets, latest: Offsets, limit: int | None, earliest: Offsets | None = None) -> Offsets:
    """Return the end offsets of the next batch: of everything, or `limit` records, divided by lag.

    A removed partition keeps its offset: Spark compares offsets only, and accepts no smaller set of them. A new one
    starts at its log start, as does one that retention has overtaken: deleted records do not count.
    """
    end = {topic: dict(partitions) for topic, partitions in start.items()}
    begins = {
        (topic, index): max(start.get(topic, {}).get(index, 0), (earliest or {}).get(topic, {}).get(index, 0))
        for topic, partitions in latest.items()
        for index in partitions
    }
    waiting = {(topic, index): max(0, latest[topic][index] - begin) for (topic, index), begin in begins.items()}
    rows = sum(waiting.values())
    room = rows if limit is None else min(limit, rows)
    for (topic, index), count in waiting.items():
        share = room * count // rows if rows else 0
        if share or index not in start.get(topic, {}):
            end.setdefault(topic, {})[index] = begins[topic, index] + share
        room, rows = room - share, rows - count
    return end


def ranges(start: Offsets, end: Offsets, earliest: Offsets | None = None) -> list[OffsetRange]:
    """Return the ranges between two offsets. A partition that appeared after the start is read from its beginning."""
    begins = earliest or {}
    found = [
        OffsetRange(topic, int(index), start.get(topic, {}).get(index, begins.get(topic, {}).get(index, 0)), offset)
        for topic, partitions in sorted(end.items())
        for index, offset in sorted(partitions.items(), key=lambda row: int(row[0]))
    ]
    return [one for one in found if one.start < one.end]


def split(whole: Sequence[OffsetRange], parts_min: int | None, records_max: int | None) -> list[OffsetRange]:
    """Split the ranges into at least `parts_min` parts of at most `records_max` records, as evenly as possible."""
    total = sum(one.records for one in whole)
    found: list[OffsetRange] = []
    for one in whole:
        parts = 1
        if parts_min is not None and parts_min > len(whole):
            parts = max(parts, -(-parts_min * one.records // total))
        if records_max is not None:
            parts = max(parts, -(-one.records // records_max))
        found += _cut(one, min(parts, one.records))
    return found


def _cut(one: OffsetRange, parts: int) -> Iterable[OffsetRange]:
    edges = [one.start + one.records * number // parts for number in range(parts + 1)]
    return (replace(one, start=begin, end=end) for begin, end in itertools.pairwise(edges))


def losses(start: Offsets, earliest: Offsets, seen: Mapping[tuple[str, str], int]) -> list[str]:
    """Return unread records that are gone: a line of text for each partition.

    `seen`: the newest known end of each log. A removed partition was empty at its removal, so its unread records had
    expired; a reused index continues at its end, so its log begins there.
    """
    found = []
    for topic, partitions in sorted(start.items()):
        for index, offset in sorted(partitions.items(), key=lambda row: int(row[0])):
            begin = earliest.get(topic, {}).get(index)
            if begin is None:
                end = seen.get((topic, index), offset)
                if end > offset:
                    found.append(f"{topic}-{index} was deleted; its offsets {offset} to {end - 1} were not read")
            elif begin > offset:
                found.append(f"{topic}-{index} begins at offset {begin} now; {offset} to {begin - 1} were not read")
    return found
