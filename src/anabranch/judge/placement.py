"""The partition of a key at each generation: a second implementation of Kafka's murmur2 and of linear hashing.

Source: `docs/resize.md`. The base is the odd part of the initial partition count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF
POSITIVE: Final = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Hash a key as Kafka's default partitioner does; the result has 31 bits."""
    hashed = (SEED ^ len(key)) & MASK
    whole = len(key) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        hashed = hashed * MULTIPLIER & MASK ^ word
    rest = key[whole:]
    if rest:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * MULTIPLIER & MASK
    hashed = (hashed ^ hashed >> 13) * MULTIPLIER & MASK
    return (hashed ^ hashed >> 15) & POSITIVE


def base_of(initial_count: int) -> int:
    """The odd part of the initial partition count."""
    while initial_count % 2 == 0:
        initial_count //= 2
    return initial_count


def partition_of(key: bytes, base: int, count: int) -> int:
    """The partition of a key among `count` partitions."""
    modulus = base
    while modulus < count:
        modulus *= 2
    place = murmur2(key) % modulus
    while place >= count:
        step = base
        if place < base:
            step = 1
        while step * 2 <= place:
            step *= 2
        place -= step
    return place


def partitions_of(key: bytes, counts: Sequence[int]) -> list[int]:
    """The partition of a key at each generation; `counts` begins with the initial count."""
    base = base_of(counts[0])
    return [partition_of(key, base, count) for count in counts]
