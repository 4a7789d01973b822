"""What the order audit is made of: a number on every record sent, and an event for every record delivered (D12).

The producer numbers the records of each key, from 0, in a header. The consumer writes one event per record it hands to
the application into an audit topic, under the record's own key: all events of a key lie in one partition of that topic,
in the order in which they were delivered. An event starts with a fixed part, so that a reader can take a whole column
of events apart without looking at them one by one; the three names follow, each with its length before it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import mmh3

from protocol.errors import DecodeError

HEADER: Final = "anabranch-audit"
"""The record header that an auditing producer adds."""

VERSION: Final = 1
NO_SEQUENCE: Final = (1 << 64) - 1
NO_PRODUCER: Final = 0
NO_GENERATION: Final = -1

_header: Final = struct.Struct(">QQ")
FIXED: Final = struct.Struct(
    ">"
    "B"  # version
    "i"  # generation of the segment; -1 in a topic without lineage
    "i"  # partition
    "q"  # offset
    "Q"  # producer
    "Q"  # sequence of the record among those of its key
    "Q"  # fingerprint of the payload
    "q"  # time of delivery, ms
    "Q"  # incarnation of the member: new each time a consumer starts
)
_length: Final = struct.Struct(">H")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One record handed to an application."""

    generation: int
    partition: int
    offset: int
    producer: int
    sequence: int
    fingerprint: int
    time_ms: int
    incarnation: int
    group: str
    member: str
    topic: str


def encode_header(producer: int, sequence: int) -> bytes:
    """The audit header of one record: who sent it, and its number among the records of its key."""
    return _header.pack(producer, sequence)


def decode_header(data: bytes) -> tuple[int, int]:
    """(producer, sequence) of an audit header; DecodeError when it is not one."""
    if len(data) != _header.size:
        raise DecodeError(f"audit header: {len(data)} bytes where {_header.size} belong")
    producer, sequence = _header.unpack(data)
    return producer, sequence


def fingerprint(payload: bytes | None) -> int:
    """64 bits of MurmurHash3 over a record's value; 0 for a null one."""
    if payload is None:
        return 0
    digest: int = mmh3.hash64(payload, signed=False)[0]
    return digest


def encode_names(group: str, member: str, topic: str) -> bytes:
    """The part of an event that is the same for all deliveries of one topic to one member."""
    return b"".join(_length.pack(len(raw)) + raw for raw in (name.encode() for name in (group, member, topic)))


def encode_delivery(delivery: Delivery) -> bytes:
    """The value of an audit record."""
    fixed = FIXED.pack(
        VERSION,
        delivery.generation,
        delivery.partition,
        delivery.offset,
        delivery.producer,
        delivery.sequence,
        delivery.fingerprint,
        delivery.time_ms,
        delivery.incarnation,
    )
    return fixed + encode_names(delivery.group, delivery.member, delivery.topic)


def decode_delivery(data: bytes) -> Delivery:
    """An audit record's value taken apart; DecodeError when it is not one."""
    if len(data) < FIXED.size:
        raise DecodeError(f"audit event: {len(data)} bytes where at least {FIXED.size} belong")
    version, *numbers = FIXED.unpack_from(data)
    if version != VERSION:
        raise DecodeError(f"audit event: version {version}, and only {VERSION} is known")
    names: list[str] = []
    position = FIXED.size
    for field in ("group", "member", "topic"):
        if position + _length.size > len(data):
            raise DecodeError(f"audit event: no {field}")
        (length,) = _length.unpack_from(data, position)
        position += _length.size
        raw = data[position : position + length]
        if len(raw) != length:
            raise DecodeError(f"audit event: {field} of {length} bytes is cut off")
        try:
            names.append(str(raw, "utf-8"))
        except UnicodeDecodeError as error:
            raise DecodeError(f"audit event: {field} is not text") from error
        position += length
    generation, partition, offset, producer, sequence, payload, time_ms, incarnation = numbers
    group, member, topic = names
    return Delivery(
        generation=generation,
        partition=partition,
        offset=offset,
        producer=producer,
        sequence=sequence,
        fingerprint=payload,
        time_ms=time_ms,
        incarnation=incarnation,
        group=group,
        member=member,
        topic=topic,
    )
