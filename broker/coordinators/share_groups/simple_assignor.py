"""The assignor of share groups: spreads members over partitions, with as many on each as on any other.

With more members than partitions several members read one partition; with fewer, each has partitions of its own. A
member keeps its partitions as far as the balance allows. Source: KIP-932; Kafka's `SimpleAssignor`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


def assign(
    subscribers: Sequence[str], partitions: Sequence[int], before: Mapping[str, frozenset[int]]
) -> Mapping[str, frozenset[int]]:
    """Assign the partitions of one topic, given the previous assignment. Both sequences are sorted."""
    if not subscribers or not partitions:
        return {}
    sharing = -(-len(subscribers) // len(partitions))
    slots = sharing * len(partitions)
    readers: Counter[int] = Counter()
    given: dict[str, set[int]] = {}
    missing: dict[str, int] = {}
    for place, member in enumerate(subscribers):
        count = _share(place + 1, slots, len(subscribers)) - _share(place, slots, len(subscribers))
        kept = [one for one in sorted(before.get(member, ())) if one in partitions and readers[one] < sharing][:count]
        readers.update(kept)
        given[member] = set(kept)
        missing[member] = count - len(kept)
    place = 0
    for member in subscribers:
        for _ in range(len(partitions)):
            if not missing[member]:
                break
            one = partitions[place % len(partitions)]
            place += 1
            if readers[one] < sharing and one not in given[member]:
                given[member].add(one)
                readers[one] += 1
                missing[member] -= 1
    return {member: frozenset(ones) for member, ones in given.items() if ones}


def _share(place: int, slots: int, members: int) -> int:
    """Return the number of slots of the members before `place`."""
    return -(-place * slots // members)
