"""Offsets of batches: where the next one ends, which ranges lie in it, and how they are cut into tasks. Pure."""

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
        """The most records that the range can hold."""
        return self.end - self.start


def admit(start: Offsets, latest: Offsets, limit: int | None, earliest: Offsets | None = None) -> Offsets:
    """The offsets at which the next batch ends: that of everything, or `limit` records, divided by what waits.

    A partition that is gone keeps the offset it had: Spark compares offsets only, and knows no smaller set of them. One
    that is new begins where its log does, as one does that retention has overtaken: what is not there does not count.
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
    """What lies between two offsets. A partition that appeared after the start is read from its beginning."""
    begins = earliest or {}
    found = [
        OffsetRange(topic, int(index), start.get(topic, {}).get(index, begins.get(topic, {}).get(index, 0)), offset)
        for topic, partitions in sorted(end.items())
        for index, offset in sorted(partitions.items(), key=lambda row: int(row[0]))
    ]
    return [one for one in found if one.start < one.end]


def split(whole: Sequence[OffsetRange], parts_min: int | None, records_max: int | None) -> list[OffsetRange]:
    """The same ranges cut so that there are at least so many, each of at most so many records, as evenly as can be."""
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
    """The records that should have been read and are gone: a line for each partition, for people.

    `seen`: the newest end of each log that was ever heard of. A partition that is gone was empty when it went, so what
    of it was not read had expired; an index that is used again goes on where it ended, so its log begins there.
    """
    found = []
    for topic, partitions in sorted(start.items()):
        for index, offset in sorted(partitions.items(), key=lambda row: int(row[0])):
            begin = earliest.get(topic, {}).get(index)
            if begin is None:
                end = seen.get((topic, index), offset)
                if end > offset:
                    found.append(f"{topic}-{index} is gone, and its offsets {offset} to {end - 1} were not read")
            elif begin > offset:
                found.append(f"{topic}-{index} begins at offset {begin} now; {offset} to {begin - 1} were not read")
    return found
