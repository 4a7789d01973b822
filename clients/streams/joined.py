"""Aligns joined topics, which are resized one after the other: computes their common progress, and which has to wait.

A task of several topics has one state for them. Where a resize moves keys of partition p, their state may leave only
when p of *each* topic is read to its cut, and so a topic that is resized first waits there for the others: nothing of a
key epoch is read before every topic of the task has reached it. This requires that the topics have one history: they
began with the same number of partitions, and were resized to the same counts in the same order, so that the same
generation cuts the same partitions at the same keys in each of them. One may be several steps ahead.

    the slowest input of a task says how far the task is: what is due, and what has to arrive, follows from that alone
    a key epoch waits for key epochs of older generations only, of whatever topic, so none waits for itself

An input that does not exist yet, because its topic is behind, delays the task; a removed one was drained, and is read
to its end. Pure; the graph is `protocol/lineage.py`, and the rest of moving state is `state_handover.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from anabranch.protocol.lineage import KeyEpoch, Lineage

Reading = tuple[Lineage, KeyEpoch]
"""The key epoch of an input, with its topic's lineage."""


def mismatch(lineages: Mapping[str, Lineage | None], *, own: Collection[str] = ()) -> str | None:
    """Return why these topics cannot be joined, with a remedy; None if their lineages allow it.

    A topic without lineage is a plain Kafka topic: until a resize Kafka's rules suffice. `own` are the application's
    internal topics, which are never resized: waiting for them would never end.
    """
    known = [one for one in lineages.values() if one is not None]
    if len(known) < len(lineages):
        fits = all(len(one.history) == 1 for one in known)
    else:
        longest = max(known, key=lambda one: len(one.history))
        fits = all(one.base == longest.base and _begins(longest, one) for one in known)
        fits = fits and all(lineages[name] == longest for name in lineages.keys() & own)
    if fits:
        return None
    both = " and ".join(f"{name} ({_counts(lineage)})" for name, lineage in sorted(lineages.items()))
    return (
        f"{both} share state, but their histories differ: they must begin with the same partition count and go "
        "through the same counts in the same order. Create one of them again, or repartition both before the join"
    )


def _begins(longer: Lineage, shorter: Lineage) -> bool:
    return longer.history[: len(shorter.history)] == shorter.history


def _counts(lineage: Lineage | None) -> str:
    return "without order" if lineage is None else ", then ".join(str(count) for _, count in lineage.history)


def slowest(inputs: Iterable[Reading | None]) -> Reading | None:
    """Return the key epoch of the slowest input; None while one does not exist, or is unknown."""
    found: list[Reading] = []
    for one in inputs:
        if one is None:
            return None
        found.append(one)
    return min(found, key=lambda one: one[1].generation, default=None)


def removed_reading(lineage: Lineage, partition: int, present: Collection[int]) -> Reading | None:
    """Return the last key epoch of a partition that was merged away and removed; None for any other partition."""
    key_epochs = lineage.key_epochs(partition)
    return (
        (lineage, key_epochs[-1]) if key_epochs and not lineage.live(partition) and partition not in present else None
    )
