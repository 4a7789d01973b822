"""Decides which key epochs are open to a group (rules R9, R11).

A consumer calls it before it delivers a batch, a coordinator before it assigns a partition to a stock member, and the
models in each of their states. Its inputs are the lineage of a topic, key epoch ends, log start offsets, and the
group's committed offsets; it uses no clock and sends no requests. The result lists the reasons for which a key epoch
waits, for display.

    Open(s)  when every source of s is done: the key epochs of other partitions that held its keys at any time before
    Done(q)  when the group has committed its end, or its log begins behind it: nothing is left that could be delivered

Sources are the whole way up (`Lineage.sources`), so that a chain through an empty partition waits for its far end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Final

from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.values import value

UNKNOWN: Final = -1


@value
class Wait:
    """Why a key epoch is closed: `key_epoch` is committed to `committed`, but ends at `end` (UNKNOWN: query)."""

    key_epoch: KeyEpoch
    end: int
    committed: int

    def __str__(self) -> str:
        end = "an end not yet known" if self.end == UNKNOWN else f"offset {self.end}"
        done = "nothing" if self.committed == UNKNOWN else str(self.committed)
        return f"{self.key_epoch} to reach {end} (committed: {done})"


def _no_start(_partition: int) -> int:
    return UNKNOWN


def waits(
    lineage: Lineage,
    key_epoch: KeyEpoch,
    *,
    there: Container[int],
    end: Callable[[KeyEpoch], int],
    committed: Callable[[int], int],
    start: Callable[[int], int] = _no_start,
) -> Iterator[Wait]:
    """Return what the key epoch's gate waits for, however far up the lineage; nothing if the gate is open.

    `there` has the partitions of the topic, `end` returns exclusive ends of key epochs, `start` a partition's log
    start, for callers that can query it, and `committed` the group's stable offset in a partition.
    """
    for source in lineage.sources(key_epoch):
        # A removed partition was drained before; its earlier key epochs still count (K613, K411).
        if source.partition in there:
            ends_at, reached = end(source), committed(source.partition)
            if ends_at == UNKNOWN or max(reached, start(source.partition)) < ends_at:
                yield Wait(source, ends_at, reached)


def next_closed(
    lineage: Lineage,
    partition: int,
    position: int,
    *,
    is_open: Callable[[KeyEpoch], bool],
    cut: Callable[[KeyEpoch], int],
) -> KeyEpoch | None:
    """Return the closed key epoch that a reader at `position` reads next, if any: it must not read without gates.

    Open key epochs come first in a partition, because a key epoch waits for whatever the one before it waits for. There
    is data before the end of the last open one (`cut` returns the offset), and a reader without gates would read on
    behind it: only merge targets have that.
    """
    key_epochs: Sequence[KeyEpoch] = lineage.key_epochs(partition)
    if not key_epochs or is_open(key_epochs[-1]):
        return None
    place = bisect_left(key_epochs, True, hi=len(key_epochs) - 1, key=lambda one: not is_open(one))
    ended = cut(key_epochs[place - 1]) if place else 0
    return key_epochs[place] if ended == UNKNOWN or position >= ended else None
