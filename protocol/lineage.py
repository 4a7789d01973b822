"""The lineage of a topic: the effect of each resize on each partition, as a graph for producers, leaders and consumers.

A topic's history is [(generation, count), ...], one entry per resize, generations never reused (rule R1). The keys of a
partition change only at some of these generations: it is created, split, merged into, or sealed. Between two of them
lies a *key epoch*, and the generation that opens it is the partition's *class generation*. Producers send it with
each batch, and leaders demand equality (R5), so a partition that a resize does not touch is never fenced.

A key epoch may be delivered once every key epoch that held its keys before has been delivered and committed (R9):

    Open(s)  when Open(previous(s)) and Done(q) for every q in predecessors(s)
    Done(q)  when committed(partition of q) >= end of q, and Open(q)

`predecessors` names key epochs of *other* partitions only: a split child waits for its parent, a merge target for the
retiring partitions merged into it. The graph is acyclic, because every edge leads from a lower generation to a higher
one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch.protocol import linear_hashing


@dataclass(frozen=True, slots=True, order=True)
class KeyEpoch:
    """The records that `partition` accepted from the start of `generation` until its next class generation."""

    partition: int
    generation: int

    def __str__(self) -> str:
        return f"{self.partition}@{self.generation}"


class Lineage:
    """The history of one topic's partition count. Immutable; equal histories are equal lineages."""

    __slots__ = ("_class_generations", "_kept", "_key_epochs", "_predecessors", "_sources", "base", "history")

    def __init__(self, base: int, history: Sequence[tuple[int, int]]) -> None:
        generations = [generation for generation, _ in history]
        if not history or generations != sorted(set(generations)):
            raise ValueError(f"a history is a rising list of (generation, count), not {list(history)}")
        self.base = base
        self.history = tuple((generation, count) for generation, count in history)
        self._class_generations: dict[int, tuple[int, ...]] = {}
        self._key_epochs: dict[int, tuple[KeyEpoch, ...]] = {}
        self._predecessors: dict[KeyEpoch, tuple[KeyEpoch, ...]] = {}
        self._kept: dict[int, dict[int, list[int]]] = {}
        self._sources: dict[KeyEpoch, tuple[KeyEpoch, ...]] = {}

    @property
    def generation(self) -> int:
        """The newest generation."""
        return self.history[-1][0]

    @property
    def count(self) -> int:
        """The number of partitions that producers write to now."""
        return self.history[-1][1]

    def count_at(self, generation: int) -> int:
        """Return the count at `generation`."""
        return next(count for start, count in reversed(self.history) if start <= generation)

    def live(self, partition: int) -> bool:
        """Whether producers may write to the partition now."""
        return 0 <= partition < self.count

    def address(self, key_hash: int) -> int:
        """Return the current partition of keys with this hash."""
        return linear_hashing.address(key_hash, self.base, self.count)

    def resize(self, generation: int, count: int) -> Lineage:
        """Return the lineage after one more resize, in either direction."""
        return Lineage(self.base, [*self.history, (generation, count)])

    def until(self, generation: int) -> Lineage:
        """Return the lineage as of an earlier generation."""
        if generation >= self.generation:
            return self
        return Lineage(self.base, [(start, count) for start, count in self.history if start <= generation])

    def class_generations(self, partition: int) -> tuple[int, ...]:
        """Return the generations in which the partition's keys changed, rising; empty for an unknown partition."""
        known = self._class_generations.get(partition)
        if known is None:
            known = self._class_generations[partition] = tuple(self._changes(partition))
        return known

    def class_generation(self, partition: int, generation: int | None = None) -> int:
        """Return the class generation of a batch hashed at `generation` (None: the newest). Raises ValueError."""
        limit = self.generation if generation is None else generation
        for changed in reversed(self.class_generations(partition)):
            if changed <= limit:
                return changed
        raise ValueError(f"partition {partition} is not part of the topic at generation {limit}")

    def key_epochs(self, partition: int) -> tuple[KeyEpoch, ...]:
        """Return the partition's key epochs in the order of its offsets; those of a sealed period are empty."""
        known = self._key_epochs.get(partition)
        if known is None:
            epochs = [KeyEpoch(partition, generation) for generation in self.class_generations(partition)]
            known = self._key_epochs[partition] = tuple(epochs)
        return known

    def previous(self, key_epoch: KeyEpoch) -> KeyEpoch | None:
        """Return the key epoch before this one in the same partition."""
        changed = self.class_generations(key_epoch.partition)
        place = bisect_left(changed, key_epoch.generation)
        return KeyEpoch(key_epoch.partition, changed[place - 1]) if place else None

    def next(self, key_epoch: KeyEpoch) -> KeyEpoch | None:
        """Return the next key epoch in the same partition; this one ends at its first leader epoch (R7)."""
        changed = self.class_generations(key_epoch.partition)
        place = bisect_right(changed, key_epoch.generation)
        return KeyEpoch(key_epoch.partition, changed[place]) if place < len(changed) else None

    def predecessors(self, key_epoch: KeyEpoch) -> tuple[KeyEpoch, ...]:
        """Return the key epochs of other partitions that held this one's keys just before it began."""
        known = self._predecessors.get(key_epoch)
        if known is None:
            known = self._predecessors[key_epoch] = tuple(self._find_predecessors(key_epoch))
        return known

    def sources(self, key_epoch: KeyEpoch) -> tuple[KeyEpoch, ...]:
        """Return the key epochs that must be done before this one opens: R9's recursion, unrolled, nearest first.

        Without earlier ones of its own partition: its reader has read those, and a crash replays both.
        """
        known = self._sources.get(key_epoch)
        if known is not None:
            return known
        sources: dict[KeyEpoch, None] = {}
        seen, open_before = {key_epoch}, deque([key_epoch])
        while open_before:
            one = open_before.popleft()
            before, others = self.previous(one), self.predecessors(one)
            sources.update(dict.fromkeys(other for other in others if other.partition != key_epoch.partition))
            for earlier in (before, *others):
                if earlier is not None and earlier not in seen:
                    seen.add(earlier)
                    open_before.append(earlier)
        known = self._sources[key_epoch] = tuple(sources)
        return known

    def _find_predecessors(self, key_epoch: KeyEpoch) -> Iterator[KeyEpoch]:
        before, after = self._counts_around(key_epoch.generation)
        partition = key_epoch.partition
        if before is None or partition >= after:
            return
        if partition >= before:
            sources = [linear_hashing.ancestor(partition, before, self.base)]
        else:
            sources = self._relatives(key_epoch.generation).get(partition, []) if after < before else []
        for one in sources:
            yield KeyEpoch(one, self.class_generation(one, key_epoch.generation - 1))

    def receiving_partitions(self) -> set[int]:
        """Return the partitions that took over keys of others in some resize: only these have key epochs with sources.

        It is cheap: the lineage of a partition is not computed.
        """
        found: set[int] = set()
        for (_, before), (_, after) in pairwise(self.history):
            if after > before:
                found.update(range(before, after))
            else:
                changed = linear_hashing.affected_partitions(self.base, before, after)
                found.update(one for one in changed if one < after)
        return found

    def successors(self, key_epoch: KeyEpoch) -> tuple[KeyEpoch, ...]:
        """Return the key epochs of other partitions that wait for this one."""
        following = self.next(key_epoch)
        if following is None:
            return ()
        generation = following.generation
        before, after = self._counts_around(generation)
        assert before is not None, "a second key epoch begins at a resize"
        partition = key_epoch.partition
        if partition >= after:
            return (KeyEpoch(linear_hashing.ancestor(partition, after, self.base), generation),)
        if after < before:
            return ()
        return tuple(KeyEpoch(child, generation) for child in self._relatives(generation).get(partition, []))

    def _relatives(self, generation: int) -> dict[int, list[int]]:
        """Return kept partition -> the partitions that split off from it, or merge into it, in a resize."""
        known = self._kept.get(generation)
        if known is None:
            known = self._kept[generation] = {}
            before, after = self._counts_around(generation)
            assert before is not None, "a first generation has no resize"
            fewer, more = sorted((before, after))
            for partition in range(fewer, more):
                known.setdefault(linear_hashing.ancestor(partition, fewer, self.base), []).append(partition)
        return known

    def _changes(self, partition: int) -> list[int]:
        changes: list[int] = []
        held: linear_hashing.KeyClass | None = None
        for generation, count in self.history:
            holds = linear_hashing.key_class(partition, self.base, count)
            if holds != held:
                changes.append(generation)
            held = holds
        return changes

    def _counts_around(self, generation: int) -> tuple[int | None, int]:
        """Return the counts before and from `generation` on; None before the first."""
        index = next(place for place, (start, _) in enumerate(self.history) if start == generation)
        return (self.history[index - 1][1] if index else None), self.history[index][1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lineage) and (self.base, self.history) == (other.base, other.history)

    def __hash__(self) -> int:
        return hash((self.base, self.history))

    def __repr__(self) -> str:
        steps = " -> ".join(f"{count}@{generation}" for generation, count in self.history)
        return f"<Lineage base {self.base}: {steps}>"
