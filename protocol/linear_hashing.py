"""Linear hashing: which partition a key belongs to, and which keys move when the count changes (KIP-253, B1-B3).

With base d and count n, let L be the largest level with d * 2**L <= n and S = n - d * 2**L the number of partitions
that have been split at that level. A partition then holds exactly one *residue class* of key hashes: modulo
d * 2**(L+1) if it has been split or is itself the upper half of a split, modulo d * 2**L otherwise. From this follows
all that a resize relies on: a new partition takes keys from one older one only, a removed one gives its keys to one
survivor only, and keys never move between two partitions that both stay.

The base of a topic is the odd part of its initial count: for every n >= that count the mapping is the same as with the
count itself as base, equal to `hash % n` at n = d * 2**k, and it lets a topic shrink below where it started.
"""

from __future__ import annotations


def base_of(initial_count: int) -> int:
    """The odd part of the initial count: the fewest partitions that a topic can be merged back into."""
    if initial_count < 1:
        raise ValueError(f"a topic has at least one partition, not {initial_count}")
    return initial_count // (initial_count & -initial_count)


def address(key_hash: int, base: int, count: int) -> int:
    """The partition, of `count`, that keys with this hash belong to."""
    modulus = _level_modulus(base, count)
    partition = key_hash % modulus
    if partition < count - modulus:
        return key_hash % (2 * modulus)
    return partition


def parent(partition: int, base: int) -> int:
    """The partition that `partition` split off from; only those at or above the base have one."""
    if partition < base:
        raise ValueError(f"partition {partition} is one of the first {base}, which split off from none")
    return partition - _level_modulus(base, partition)


def ancestor(partition: int, count: int, base: int) -> int:
    """The one partition below `count` that holds, or would hold, the keys of `partition` when there are `count`."""
    if count < base:
        raise ValueError(f"{count} partitions are fewer than the base {base}")
    while partition >= count:
        partition = parent(partition, base)
    return partition


def residue_class(partition: int, base: int, count: int) -> tuple[int, int] | None:
    """(modulus, residue) of the key hashes that `partition` holds among `count`; None when it is not one of them."""
    if partition >= count:
        return None
    modulus = _level_modulus(base, count)
    if partition < count - modulus or partition >= modulus:
        modulus *= 2
    return modulus, partition


def affected(base: int, before: int, after: int) -> list[int]:
    """The partitions whose keys change when the count goes from `before` to `after`: the only ones a resize touches."""
    return [
        partition
        for partition in range(max(before, after))
        if residue_class(partition, base, before) != residue_class(partition, base, after)
    ]


def moved_share(base: int, before: int, after: int) -> float:
    """The share of all keys that change their partition, between 0 and 1."""
    larger = max(before, after)
    return sum(share(partition, base, larger) for partition in range(min(before, after), larger))


def share(partition: int, base: int, count: int) -> float:
    """The share of all keys that `partition` holds among `count`."""
    held = residue_class(partition, base, count)
    return 0.0 if held is None else 1 / held[0]


def imbalance(base: int, count: int) -> float:
    """Predicted load of the fullest partition over the mean: 1.0 at base * 2**k, below 2 always."""
    return count * max(share(partition, base, count) for partition in range(count))


def _level_modulus(base: int, count: int) -> int:
    """base * 2**L, the largest such number that is not above `count`."""
    if count < base:
        raise ValueError(f"{count} partitions are fewer than the base {base}")
    return base << ((count // base).bit_length() - 1)
