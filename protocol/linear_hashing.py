"""Linear hashing: maps keys to partitions, and computes which keys a resize moves (KIP-253; K201 to K203).

The partitions of a topic form a tree that its base alone decides. From the base on, partition p split off from p - base
* 2**k, the largest such step that leaves it 0 or more; below the base, from p without its highest set bit, as if the
first partitions had come of linear hashing over one. A key's hash modulo a number that is large enough names a
partition of the tree, and the key belongs to the nearest one up the tree that is below the count (`ancestor`).

What a partition holds is therefore its branch without the branches that were split off from it: a *key class*. At or
above the base that is one residue of the hash, modulo base * 2**k; below the base it is several residues modulo the
base. Key classes of any two counts are nested or disjoint. From this follows all that a resize relies on: a new
partition takes keys from one older one only, a removed one gives its keys to one merge target only, and keys never move
between two partitions that both stay, however many levels the resize crosses at once.

The base of a topic is the odd part of its initial count: for every n >= that count the mapping is the same as with the
count itself as base, equal to `hash % n` at n = base * 2**k, where all partitions hold the same share of the keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple


class KeyClass(NamedTuple):
    """The key hashes of a partition: those that leave one of `residues` modulo `modulus`.

    Two classes of one topic are equal if and only if they hold the same keys.
    """

    modulus: int
    residues: range

    def holds(self, key_hash: int) -> bool:
        """Whether the class holds keys with this hash."""
        return key_hash % self.modulus in self.residues

    def overlaps(self, other: KeyClass) -> bool:
        """Whether two classes of one topic, at any counts, share a key: then one contains the other."""
        return self.holds(other.residues[0]) or other.holds(self.residues[0])

    @property
    def share(self) -> float:
        """Return the class's share of all keys, between 0 and 1."""
        return len(self.residues) / self.modulus


EVERY_KEY: Final = KeyClass(1, range(1))


def base_of(initial_count: int) -> int:
    """Return the odd part of the initial count: at this count, doubled any number of times, all shares are equal."""
    _check(initial_count)
    return initial_count // (initial_count & -initial_count)


def address(key_hash: int, base: int, count: int) -> int:
    """Return the partition, of `count`, of keys with this hash."""
    return addressing(base, count)(key_hash)


@lru_cache(maxsize=1024)
def addressing(base: int, count: int) -> Callable[[int], int]:
    """Return `address` for many keys of one topic: hash -> partition, with the level computed once."""
    level = _level(base, count)
    doubled = 2 * level

    def address_from_base(key_hash: int) -> int:
        partition = key_hash % doubled
        return partition if partition < count else partition - level

    def address_below_base(key_hash: int) -> int:
        partition = key_hash % base % doubled
        return partition if partition < count else partition - level

    return address_below_base if count < base else address_from_base


def parent(partition: int, base: int) -> int:
    """Return the partition that `partition` split off from. All but partition 0 have one."""
    if partition < 1:
        raise ValueError(f"partition {partition} has no parent")
    return partition - _level(base, partition)


def ancestor(partition: int, count: int, base: int) -> int:
    """Return the one partition below `count` that holds, or would hold, the keys of `partition`."""
    _check(count)
    while partition >= count:
        partition = parent(partition, base)
    return partition


def key_class(partition: int, base: int, count: int) -> KeyClass | None:
    """Return the keys of `partition` among `count`; None if it is not one of them."""
    step = level = _level(base, count)
    if partition >= count:
        return None
    if partition < count - level or partition >= level:
        step *= 2
    if count < base:
        return KeyClass(base, range(partition, base, step))
    return KeyClass(step, range(partition, partition + 1))


def affected_partitions(base: int, before: int, after: int) -> list[int]:
    """Return the partitions whose keys change between the two counts: the only ones that a resize touches."""
    fewer, more = sorted((before, after))
    return [*_relatives(base, fewer, more), *range(fewer, more)]


@lru_cache(maxsize=16)
def _relatives(base: int, fewer: int, more: int) -> tuple[int, ...]:
    """Cached, because every step of a resize, possibly of thousands of partitions, needs it."""
    return tuple(sorted({ancestor(partition, fewer, base) for partition in range(fewer, more)}))


def moved_share(base: int, before: int, after: int) -> float:
    """Return the share of all keys that change their partition, between 0 and 1."""
    larger = max(before, after)
    return sum(shares(base, larger)[min(before, after) :])


def shares(base: int, count: int) -> list[float]:
    """Return the share of all keys in each of `count` partitions."""
    classes = (key_class(partition, base, count) for partition in range(count))
    return [held.share for held in classes if held is not None]


def imbalance(base: int, count: int) -> float:
    """Return the predicted load of the fullest partition over the mean: 1.0 at 1 and at base * 2**k, below 2 always."""
    return count * max(shares(base, count))


def _level(base: int, count: int) -> int:
    """Return the largest base * 2**k that is not above `count`; below the base, the largest 2**k."""
    _check(count)
    root = base if count >= base else 1
    return root << ((count // root).bit_length() - 1)


def _check(count: int) -> None:
    if count < 1:
        raise ValueError(f"a topic has at least one partition, not {count}")
