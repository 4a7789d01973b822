"""Moves state with its keys through a resize: which keys leave a partition, their targets, and what a task waits for.

When partition p is cut at generation g, the keys that it no longer holds go to other partitions, with everything that
stores know of them. The task that read p to the cut *hands over*: in transactions, each of a limited number of keys, it
writes them to the changelog partitions of their new tasks and deletes them from its own; with the last come marks,
`arrived` there and `departed` here. The group's coordinator has to agree to each, so that no earlier owner hands over
old state. A task opens key epoch (c, g) when every partition that passes keys to it at g has left its mark (and so does
a standby's copy, which reads the same changelog). Therefore:

    a store's changelog always holds its whole state: no other changelog is read to restore it
    a crash at any moment leaves the state of each key in one place, and from the marks one sees what is still due
    handing over late does no harm: the keys that left get nothing new where they were, and wait where they are going

A partition that is merged and empty is removed at once, maybe between what it gets and what it gives. Its task lives on
until both is done (`removed_tasks.py`), so nothing here depends on which partitions there are.

The consumer's gates order the records of a key; the marks order its state. Gates alone would not do: offsets up to a
cut may be committed by a member that has not heard of the cut yet. Pure; the graph is `protocol/lineage.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from anabranch.clients.streams.changelog import Marks
from anabranch.protocol import linear_hashing
from anabranch.protocol.lineage import KeyEpoch, Lineage

Key = TypeVar("Key")
Value = TypeVar("Value")


def due(lineage: Lineage, key_epoch: KeyEpoch, departed: int) -> list[int]:
    """Return the generations whose departing keys are due for hand-over: all before `key_epoch` is read."""
    return [
        one.generation
        for one in lineage.key_epochs(key_epoch.partition)
        if departed < one.generation <= key_epoch.generation and receivers(lineage, one)
    ]


def receivers(lineage: Lineage, opened: KeyEpoch) -> tuple[int, ...]:
    """Return the partitions that take keys from this one where `opened` begins."""
    before = lineage.previous(opened)
    return () if before is None else tuple(one.partition for one in lineage.successors(before))


def leaving(
    lineage: Lineage,
    opened: KeyEpoch,
    items: Iterable[tuple[Key, Value]],
    hash_of: Callable[[Key], int],
    room: int,
) -> tuple[dict[int, dict[Key, Value]], int | None]:
    """Return at most `room` of the keys that leave where `opened` begins, by target; and how many stay, None if not all
    left.

    A late hand-over meets newer keys of unrelated partitions: they stay.
    """
    ways: dict[int, dict[Key, Value]] = {target: {} for target in receivers(lineage, opened)}
    base, count = lineage.base, lineage.count_at(opened.generation)
    kept = 0
    for key, value in items:
        target = linear_hashing.address(hash_of(key), base, count)
        if target not in ways:
            kept += 1
        elif room == 0:
            return ways, None
        else:
            ways[target][key] = value
            room -= 1
    return ways, kept


def missing(lineage: Lineage, key_epoch: KeyEpoch, marks: Marks) -> list[KeyEpoch]:
    """Return the key epochs whose keys have to arrive before this one is processed, and have not."""
    return [source for source, _ in _missing(lineage, key_epoch, marks)]


def awaited_arrivals(lineage: Lineage, key_epoch: KeyEpoch, marks: Marks) -> list[tuple[int, int]]:
    """Return the (partition, generation) whose keys must arrive before this key epoch is processed, oldest first."""
    return [(source.partition, generation) for source, generation in _missing(lineage, key_epoch, marks)]


def _missing(lineage: Lineage, key_epoch: KeyEpoch, marks: Marks) -> list[tuple[KeyEpoch, int]]:
    return [
        (source, opened.generation)
        for opened in lineage.key_epochs(key_epoch.partition)
        if opened.generation <= key_epoch.generation
        for source in lineage.predecessors(opened)
        if marks.arrived.get(source.partition, -1) < opened.generation
    ]
