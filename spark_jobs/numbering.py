"""Finds repeated and missing audit events by their numbers: the audit topic is written at least once.

An incarnation numbers its events within a bucket from 0 (`protocol.audit`). An event with a known number is a
repetition of the audit itself; an event with a skipped number is late; a number that never arrives is a gap.
"""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from anabranch.spark_jobs.columns import Column
from anabranch.spark_jobs.verdict import Span

NEW: Final = 0
AGAIN: Final = 1
BEHIND: Final = 2


@dataclass(slots=True)
class Seen:
    """The numbers of one incarnation."""

    next: int = 0
    holes: list[Span] = field(default_factory=list)

    def take(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """Note consecutive numbers. Returns (first, last, whether new, seen before or late) for each part, in order."""
        found = []
        if first > self.next:
            self.holes.append((self.next, first - 1))
        if first < self.next:
            end = min(last, self.next - 1)
            found += self._take_behind(first, end)
            first = end + 1
        if first <= last:
            found.append((first, last, NEW))
            self.next = last + 1
        return found

    def _take_behind(self, first: int, last: int) -> list[tuple[int, int, int]]:
        found, position = [], first
        while position <= last:
            at = bisect.bisect_right(self.holes, position, key=lambda hole: hole[0]) - 1
            if at >= 0 and self.holes[at][1] >= position:
                begin, end = self.holes[at]
                until = min(end, last)
                found.append((position, until, BEHIND))
                rest = [(begin, position - 1), (until + 1, end)]
                self.holes[at : at + 1] = [hole for hole in rest if hole[0] <= hole[1]]
            else:
                following = self.holes[at + 1][0] if at + 1 < len(self.holes) else last + 1
                until = min(following - 1, last)
                found.append((position, until, AGAIN))
            position = until + 1
        return found


@dataclass(slots=True)
class Numbers:
    """The numbers of every incarnation in one bucket."""

    seen: dict[int, Seen] = field(default_factory=dict)

    def admit(self, incarnations: Column, numbers: Column) -> npt.NDArray[np.int8]:
        """Return whether each event is new, seen before or late, by its number. Unnumbered ones (-1) are new."""
        found = np.zeros(len(numbers), np.int8)
        if not len(numbers):
            return found
        breaks = (incarnations[1:] != incarnations[:-1]) | (numbers[1:] != numbers[:-1] + 1)
        begins = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(numbers)]
        for begin, end in itertools.pairwise(begins):
            first, last = int(numbers[begin]), int(numbers[end - 1])
            if first < 0:
                continue
            seen = self.seen.setdefault(int(incarnations[begin]), Seen())
            if first == seen.next:
                seen.next = last + 1
                continue
            for low, high, what in seen.take(first, last):
                found[begin + low - first : begin + high - first + 1] = what
        return found

    def as_json(self) -> list[Any]:
        """Convert to JSON for the state store."""
        return [[incarnation, seen.next, seen.holes] for incarnation, seen in self.seen.items()]

    @classmethod
    def of_json(cls, found: list[Any]) -> Numbers:
        """Restore from `as_json`."""
        return cls({one: Seen(following, [(a, b) for a, b in holes]) for one, following, holes in found})
