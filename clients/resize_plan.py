"""Computes the effects of a resize, and the partitions that a rewind includes, from a lineage.

A plan has the share of keys that move, the load of the fullest partition, the leaders that refuse producers for a
moment, and which partition waits for which (rule R9). A rewind of one partition repeats records that precede others
already delivered elsewhere; to keep the guarantee, its descendants must be rewound to their beginnings (K608).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.protocol import linear_hashing
from anabranch.protocol.lineage import KeyEpoch, Lineage


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """The effects of a resize, computed before anything is changed."""

    before: int
    after: int
    generation: int
    moved_share: float
    """The share of all keys that change their partition, between 0 and 1."""
    imbalance_before: float
    """Load of the fullest partition over the mean, with many equal keys: below 2, and 1 if all are equal."""
    imbalance_after: float
    shares_after: tuple[float, ...]
    """The share of all keys in each partition afterwards, by partition."""
    fenced: tuple[int, ...]
    """The partitions whose leaders adopt a new generation; producers to other partitions are not affected."""
    waits: Mapping[int, tuple[int, ...]]
    """Partition -> those that a group must have read and committed first."""


def plan_resize(lineage: Lineage, count: int) -> ResizePlan:
    """Compute the effects of a resize to `count` partitions. Raises ValueError for an impossible count."""
    base, before = lineage.base, lineage.count
    after = lineage.resize(lineage.generation + 1, count)
    fresh = [
        KeyEpoch(partition, after.generation) for partition in linear_hashing.affected_partitions(base, before, count)
    ]
    waits = {key_epoch.partition: tuple(one.partition for one in after.predecessors(key_epoch)) for key_epoch in fresh}
    return ResizePlan(
        before=before,
        after=count,
        generation=after.generation,
        moved_share=linear_hashing.moved_share(base, before, count),
        imbalance_before=linear_hashing.imbalance(base, before),
        imbalance_after=linear_hashing.imbalance(base, count),
        shares_after=tuple(linear_hashing.shares(base, count)),
        fenced=tuple(key_epoch.partition for key_epoch in fresh if key_epoch.partition < before),
        waits={partition: sources for partition, sources in waits.items() if sources},
    )


def rewind_lineage(
    lineage: Lineage, ends: Mapping[KeyEpoch, int], committed: Mapping[int, int], partition: int, offset: int
) -> dict[int, int]:
    """Return the committed offsets after a rewind of `partition` to `offset`, for every partition that changes.

    `ends` holds the ends of cut key epochs, exclusive. Raises KeyError if one is missing. No offset moves forward.
    """
    target = {partition: offset}
    first = next((one for one in lineage.key_epochs(partition) if one not in ends or offset < ends[one]), None)
    seen: set[KeyEpoch] = set()
    reached = deque([] if first is None else [first])
    while reached:
        key_epoch = reached.popleft()
        if key_epoch in seen:
            continue
        seen.add(key_epoch)
        following = lineage.next(key_epoch)
        reached.extend(lineage.successors(key_epoch))
        if following is not None:
            reached.append(following)
        home = key_epoch.partition
        if home == partition or home not in committed:
            continue
        before = lineage.previous(key_epoch)
        start = 0 if before is None else ends[before]
        target[home] = min(start, target.get(home, committed[home]))
    return {one: to for one, to in target.items() if one == partition or to < committed[one]}


def family(lineage: Lineage, partition: int) -> frozenset[int]:
    """Return the partitions that ever shared keys with this one, through any chain of splits and merges."""
    related, found = {partition}, deque([partition])
    while found:
        one = found.popleft()
        for key_epoch in lineage.key_epochs(one):
            for other in (*lineage.predecessors(key_epoch), *lineage.successors(key_epoch)):
                if other.partition not in related:
                    related.add(other.partition)
                    found.append(other.partition)
    return frozenset(related)
