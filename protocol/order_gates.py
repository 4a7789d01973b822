"""Decides which segments are open to a group (rules R9, R11).

A consumer calls it before it delivers a batch, a coordinator before it assigns a partition to a stock member, and the
models in each of their states. Its inputs are the lineage of a topic, segment ends, log start offsets, and the group's
committed offsets; it uses no clock and sends no requests. The result lists the reasons for which a segment waits, for
display.

    Open(s)  when every source of s is done: the segments of other partitions that held its keys at any time before
    Done(q)  when the group has committed its end, or its log begins behind it: nothing is left that could be delivered

Sources are the whole way up (`Lineage.sources`), so that a chain through an empty partition waits for its far end.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.lineage import Lineage, Segment

UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Wait:
    """One reason why a segment is closed: `segment` is committed to `committed`, but ends at `end` (UNKNOWN: query)."""

    segment: Segment
    end: int
    committed: int

    def __str__(self) -> str:
        end = "an end not yet known" if self.end == UNKNOWN else f"offset {self.end}"
        done = "nothing" if self.committed == UNKNOWN else str(self.committed)
        return f"{self.segment} to reach {end} (committed: {done})"


def _no_start(_partition: int) -> int:
    return UNKNOWN


def waits(
    lineage: Lineage,
    segment: Segment,
    *,
    there: Container[int],
    end: Callable[[Segment], int],
    committed: Callable[[int], int],
    start: Callable[[int], int] = _no_start,
) -> Iterator[Wait]:
    """Return what the segment's gate waits for, however far up the lineage; nothing if the gate is open.

    `there` has the partitions of the topic, `end` returns exclusive ends of segments, `start` a partition's log start,
    for callers that can query it, and `committed` the group's stable offset in a partition.
    """
    for source in lineage.sources(segment):
        # A removed partition was drained before; its earlier segments still count (K613, K411).
        if source.partition in there:
            ends_at, reached = end(source), committed(source.partition)
            if ends_at == UNKNOWN or max(reached, start(source.partition)) < ends_at:
                yield Wait(source, ends_at, reached)


def next_closed(
    lineage: Lineage,
    partition: int,
    position: int,
    *,
    is_open: Callable[[Segment], bool],
    cut: Callable[[Segment], int],
) -> Segment | None:
    """Return the closed segment that a reader at `position` reads next, if any: it must not read without gates.

    Open segments come first in a partition. There is data before the end of the last of them (`cut` returns the
    offset), and a reader without gates would read on behind it: only merge targets have that.
    """
    segments: Sequence[Segment] = lineage.segments(partition)
    for place, segment in enumerate(segments):
        if not is_open(segment):
            ended = cut(segments[place - 1]) if place else 0
            return segment if ended == UNKNOWN or position >= ended else None
    return None
