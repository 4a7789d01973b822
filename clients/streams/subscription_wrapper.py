"""The messages between the two sides of a foreign-key join, as bytes.

    a subscription  a left row asks the task of its foreign key for the right row, now and whenever that changes
    a response      the right row for a left row, or that there is none

Both carry a hash of the left row's value, None for a deleted row: a response for an older value is not used. The task
of a foreign key keeps the hash of each subscription, under the foreign key and the left row's key.

Pure; source: SubscriptionWrapper, SubscriptionResponseWrapper and CombinedKeySchema of Kafka Streams. The bytes are not
Kafka's.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from typing import Final, NamedTuple

from anabranch.clients.streams.serdes import Serde

VERSION: Final = 0
HASH_BYTES: Final = 16
_HEAD: Final = struct.Struct(">BBB")
_KEY_LENGTH: Final = struct.Struct(">I")


class Instruction(enum.IntEnum):
    """What the task of a foreign key does with a subscription; the names are Kafka's."""

    DELETE_KEY_NO_PROPAGATE = 0
    """End it."""
    DELETE_KEY_AND_PROPAGATE = 1
    """End it, and respond that there is no row."""
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    """Keep it, and respond."""
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3
    """Keep it, and respond; without a row, only a result that exists is to be deleted."""


class SubscriptionWrapper(NamedTuple):
    """A subscription, whose record has the foreign key."""

    hash: bytes | None
    """That of the left row's value."""
    instruction: Instruction
    key: bytes
    """The key of the left row."""


class SubscriptionResponseWrapper(NamedTuple):
    """A response, whose record has the key of the left row."""

    hash: bytes | None
    """That of the subscription."""
    row: bytes | None
    """The value of the right row; None if there is none."""
    only_if_result: bool = False
    """Whether nothing is forwarded without a row, unless there is a result to delete."""


def hash_of(value: bytes | None) -> bytes | None:
    """Return the hash of a left row's value."""
    return None if value is None else hashlib.blake2b(value, digest_size=HASH_BYTES).digest()


def prefix_of(foreign_key: bytes) -> bytes:
    """Return what the keys of all subscriptions to a foreign key begin with, and no others."""
    return _KEY_LENGTH.pack(len(foreign_key)) + foreign_key


def combined_key(foreign_key: bytes, key: bytes) -> bytes:
    """Return the key of a left row's subscription in the store."""
    return prefix_of(foreign_key) + key


def _encode(first: int, hash_: bytes | None, rest: bytes) -> bytes:
    return _HEAD.pack(VERSION, first, hash_ is not None) + (hash_ or b"") + rest


def _decode(raw: bytes) -> tuple[int, bytes | None, bytes]:
    version, first, has_hash = _HEAD.unpack_from(raw)
    if version != VERSION:
        raise ValueError(f"a foreign-key join of version {version} has sent this; this one has version {VERSION}")
    end = _HEAD.size + HASH_BYTES * has_hash
    return first, raw[_HEAD.size : end] if has_hash else None, raw[end:]


def _encode_subscription(one: SubscriptionWrapper) -> bytes:
    return _encode(one.instruction, one.hash, one.key)


def _decode_subscription(raw: bytes) -> SubscriptionWrapper:
    instruction, hash_, key = _decode(raw)
    return SubscriptionWrapper(hash_, Instruction(instruction), key)


def _encode_response(one: SubscriptionResponseWrapper) -> bytes:
    return _encode(2 * (one.row is not None) + one.only_if_result, one.hash, one.row or b"")


def _decode_response(raw: bytes) -> SubscriptionResponseWrapper:
    flags, hash_, row = _decode(raw)
    return SubscriptionResponseWrapper(hash_, row if flags & 2 else None, bool(flags & 1))


SUBSCRIPTION: Final = Serde(_encode_subscription, _decode_subscription)
RESPONSE: Final = Serde(_encode_response, _decode_response)
