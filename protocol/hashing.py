"""Kafka's hashes: of record keys (decision D10) and of group names.

The only module that imports the murmur2 library. Kafka's producers seed it with 0x9747b28c and drop the sign bit, so
that every Java-compatible client agrees on the partition of a key while a topic has its initial count.
"""

from __future__ import annotations

from codecs import utf_16_be_encode
from typing import Final

from murmurhash2 import murmurhash2

_SEED: Final = 0x9747B28C


def murmur2(key: bytes) -> int:
    """Return the non-negative 31-bit key hash of Kafka's default partitioner."""
    digest: int = murmurhash2(key, _SEED)
    return digest & 0x7FFFFFFF


def partition_of_group(group: str, count: int) -> int:
    """Return a group's partition of `__consumer_offsets`: Java's hash of its name, without the sign."""
    code = 0
    encoded, _ = utf_16_be_encode(group, "surrogatepass")
    for position in range(0, len(encoded), 2):
        code = (31 * code + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFFFFFF
    signed = code - (1 << 32) if code & 0x80000000 else code
    return 0 if signed == -(1 << 31) else abs(signed) % count
