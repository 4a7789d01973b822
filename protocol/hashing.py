"""Kafka's key hash (decision D10).

The one place that knows the murmur2 library. Kafka's producers seed it with 0x9747b28c and drop the sign bit, so that
every Java-compatible client agrees on the partition of a key while a topic has its initial count.
"""

from __future__ import annotations

from typing import Final

from murmurhash2 import murmurhash2

_SEED: Final = 0x9747B28C


def murmur2(key: bytes) -> int:
    """The non-negative 31-bit hash that Kafka's default partitioner takes of a key."""
    digest: int = murmurhash2(key, _SEED)
    return digest & 0x7FFFFFFF
