"""The password of a ZooKeeper session, derived from its id: a client that knows the id can take the session over.

Source: sixteen bytes of `java.util.Random`, seeded with the id and a constant (`ZooKeeperServer.generatePasswd`).
"""

from __future__ import annotations

from typing import Final

SUPER_SECRET: Final = 0xB3415C00
MULTIPLIER: Final = 0x5DEECE66D
MASK_48: Final = (1 << 48) - 1


def password_of(session_id: int) -> bytes:
    """Return the password that servers assign to this session id."""
    seed = ((session_id & ((1 << 64) - 1)) ^ SUPER_SECRET ^ MULTIPLIER) & MASK_48
    found = b""
    for _ in range(4):
        seed = (seed * MULTIPLIER + 0xB) & MASK_48
        found += (seed >> 16 & 0xFFFFFFFF).to_bytes(4, "little")
    return found
