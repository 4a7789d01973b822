"""What a resize would do, and which partitions a rewind has to include: arithmetic over a lineage, for tools.

A plan says which share of all keys moves, how full the fullest partition will be, which leaders refuse producers for a
moment, and which partition waits for which (rule R9). A rewind of one partition brings back records that came before
others already delivered elsewhere; the guarantee then needs the descendants rewound to where they began (K608).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.protocol import linear_hashing
from anabranch.protocol.lineage import Lineage, Segment


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """What a resize would do, computed before anything is changed."""

    before: int
    after: int
    generation: int
    moved_share: float
    """The share of all keys that change their partition, between 0 and 1."""
    imbalance_before: float
    """Load of the fullest partition over the mean, if keys are many and alike: below 2, and 1 if all hold as many."""
    imbalance_after: float
    shares_after: tuple[float, ...]
    """The share of all keys that each partition will hold, by partition."""
    fenced: tuple[int, ...]
    """The partitions whose leaders take up a new generation; no other producer notices anything."""
    waits: Mapping[int, tuple[int, ...]]
    """Partition -> those that a group must have read and committed first."""


def plan_resize(lineage: Lineage, count: int) -> ResizePlan:
    """What a resize to `count` partitions would do. ValueError if the topic cannot have that many."""
    base, before = lineage.base, lineage.count
    after = lineage.resized(lineage.generation + 1, count)
    fresh = [Segment(partition, after.generation) for partition in linear_hashing.affected(base, before, count)]
    waits = {segment.partition: tuple(one.partition for one in after.predecessors(segment)) for segment in fresh}
    return ResizePlan(
        before=before,
        after=count,
        generation=after.generation,
        moved_share=linear_hashing.moved_share(base, before, count),
        imbalance_before=linear_hashing.imbalance(base, before),
        imbalance_after=linear_hashing.imbalance(base, count),
        shares_after=tuple(linear_hashing.shares(base, count)),
        fenced=tuple(segment.partition for segment in fresh if segment.partition < before),
        waits={partition: sources for partition, sources in waits.items() if sources},
    )


def rewind_lineage(
    lineage: Lineage, ends: Mapping[Segment, int], committed: Mapping[int, int], partition: int, offset: int
) -> dict[int, int]:
    """The committed offsets that a rewind of `partition` to `offset` leads to, for every partition that changes.

    `ends` holds where cut segments end, exclusive. KeyError if one is missing. Nothing is ever moved forward.
    """
    target = {partition: offset}
    first = next((one for one in lineage.segments(partition) if one not in ends or offset < ends[one]), None)
    seen: set[Segment] = set()
    reached = deque([] if first is None else [first])
    while reached:
        segment = reached.popleft()
        if segment in seen:
            continue
        seen.add(segment)
        following = lineage.next(segment)
        reached.extend(lineage.successors(segment))
        if following is not None:
            reached.append(following)
        home = segment.partition
        if home == partition or home not in committed:
            continue
        before = lineage.previous(segment)
        start = 0 if before is None else ends[before]
        target[home] = min(start, target.get(home, committed[home]))
    return {one: to for one, to in target.items() if one == partition or to < committed[one]}


def family(lineage: Lineage, partition: int) -> frozenset[int]:
    """The partitions that ever shared keys with this one, through any chain of splits and merges."""
    related, found = {partition}, deque([partition])
    while found:
        one = found.popleft()
        for segment in lineage.segments(one):
            for other in (*lineage.predecessors(segment), *lineage.successors(segment)):
                if other.partition not in related:
                    related.add(other.partition)
                    found.append(other.partition)
    return frozenset(related)
