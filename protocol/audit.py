"""The wire format of the order audit: an event for every record that a consumer delivered (D12).

The producer has numbered the records of each key in a header (`audit_mark`). Events are sent in *runs*: one record of
the audit topic holds one member's deliveries from one topic, in order, for the keys of one bucket. The bucket (of
`BUCKETS`, by the key's hash) is the audit record's own key: all events of a key lie in one partition of the audit
topic, in the order in which they were stored.

Identity: a member draws an `incarnation` when it starts, and numbers its events within each bucket from 0 without a
hole. The same (incarnation, bucket, number) twice is a repetition of the audit itself; a missing number, its own loss.

What a checker may conclude from the order within a bucket, and from nothing else:
    order       an event is stored before the commit that opens another gate, so what may follow is stored behind it
    gates       along a key's path class generations rise: a record that comes for the first time, after one of its key
                with a higher `generation`, was overtaken through a gate that was not yet to open; needs no numbers
    ownership   within a topic's partition `group_generation` rises from owner to owner: an incarnation that delivers
                from it (by `time_ms`) after another one with its generation or a higher one did, is a second owner;
                a static member that restarts keeps the generation, and is a new incarnation
    repetition  `begin_number` counts how often the member has begun to read a partition, by an assignment or a seek:
                what it delivers from there a second time before it has begun again, it was not told to
    placement   `key_hash` says which partition a key belongs to at every generation (`protocol.linear_hashing`)
A topic whose producers do not number is audited by partition, offset and generation.

A run (version 4) is big-endian, but for its events and keys, which are little-endian (a mark is bytes).
    RUN         version, count of places, generation of the group, incarnation, number of the first event, events
    names       group, member, topic, each with its length before it
    PLACE ...   of how many events in a row: key epoch's generation, partition, time of delivery in ms, `begin_number`
    EVENT ...   offset, mark (the record's audit header: producer, sequence), fingerprint, number of the key
    keys        how many there are
    KEY ...     number, hash and length of each key, by rising numbers
    key ...     each key once, though many events may be about it; records without a key have NO_KEY and their partition
Version 1, a single event under the record's own key, is still understood; see `FIXED`.
"""

from __future__ import annotations

import itertools
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import mmh3

from anabranch.protocol import audit_mark
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.hashing import murmur2

VERSION: Final = 1
RUN_VERSION: Final = 4
BUCKETS: Final = 16
"""Nested with linear hashing: the keys of one of 2**k partitions fall into 16 / 2**k buckets."""
NO_GENERATION: Final = -1
NO_NUMBER: Final = -1
NOT_COUNTED: Final = -1
"""The value of `begin_number` for events of version 1."""

RUN: Final = struct.Struct(
    ">"
    "B"  # version
    "H"  # places
    "i"  # the group's generation in which the member was assigned the partition; -1 if unknown
    "Q"  # incarnation of the member: new each time a consumer starts
    "q"  # number of the first event among those of this incarnation in this bucket; -1: not numbered, as in version 1
    "I"  # events
)
PLACE: Final = struct.Struct(
    ">"
    "i"  # generation of the key epoch; -1 in a topic without lineage
    "i"  # partition
    "q"  # time of delivery, ms
    "I"  # number of consecutive events that this place covers
    "i"  # begin number of this incarnation for the partition; -1 if unknown
)
EVENT: Final = struct.Struct(
    "<"
    "q"  # offset
    "16s"  # mark: the audit header of the record, or NO_MARK
    "8s"  # fingerprint of the payload: the first bytes of its digest
    "I"  # number of the key in this run, or NO_KEY
)
NO_KEY: Final = (1 << 32) - 1
KEY_COUNT: Final = struct.Struct("<I")
KEY: Final = struct.Struct(
    "<"
    "I"  # number
    "I"  # hash
    "I"  # length
)
KEYS_BYTES_MAX: Final = 1 << 20
"""Size limit of a run's keys with several events, counting each with every event about it: a key of a megabyte and
thousands of events would take gigabytes to process."""

FIXED: Final = struct.Struct(
    ">"
    "B"  # version
    "i"  # generation of the key epoch; -1 in a topic without lineage
    "i"  # partition
    "q"  # offset
    "Q"  # producer
    "Q"  # sequence of the record among those of its key
    "Q"  # fingerprint of the payload
    "q"  # time of delivery, ms
    "Q"  # incarnation of the member: new each time a consumer starts
)
"""A whole event of version 1, before its names."""
FIXED_FIELDS: Final = (
    *("generation", "partition", "offset", "producer", "sequence", "fingerprint", "time_ms", "incarnation"),
)
_length: Final = struct.Struct(">H")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One record delivered to an application."""

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
    group_generation: int = NO_GENERATION
    number: int = NO_NUMBER
    """The event's number among those of this incarnation in this bucket; -1 in version 1."""
    begin_number: int = NOT_COUNTED
    """How often this incarnation had begun to read any partition, when it last began this one."""
    key: bytes | None = None
    key_hash: int = 0


class Place(NamedTuple):
    """Place and time of consecutive deliveries."""

    generation: int
    partition: int
    time_ms: int
    events: int
    begin_number: int = NOT_COUNTED


class Sender(NamedTuple):
    """The fields that all events of a run share."""

    group: str
    member: str
    topic: str
    incarnation: int
    group_generation: int


digest: Final = mmh3.mmh3_x64_128_digest
"""128 bits of MurmurHash3; its first eight bytes are the fingerprint."""


def fingerprint(payload: bytes | None) -> int:
    """Return 64 bits of MurmurHash3 of a record's value; 0 for a null one."""
    return int.from_bytes(digest(payload or b"")[:8], "little")


def key_hash(key: bytes | None, partition: int) -> int:
    """Return Kafka's hash of a key, by which partitions are chosen; the partition itself for a record without a key."""
    return partition & 0x7FFFFFFF if key is None else murmur2(key)


def bucket_of(hashed: int) -> int:
    """Return the bucket of a key hash: events about one key are in one bucket."""
    return hashed % BUCKETS


def bucket_key(bucket: int) -> bytes:
    """Return the key of a bucket's audit records."""
    return bytes((bucket,))


def encode_names(group: str, member: str, topic: str) -> bytes:
    """Encode group, member and topic, each with its length before it."""
    return b"".join(_length.pack(len(raw)) + raw for raw in (name.encode() for name in (group, member, topic)))


class Key(NamedTuple):
    """A key of events: its row in the table (`KEY`), and the key itself."""

    row: bytes
    key: bytes


def numbered_key(number: int, hashed: int, key: bytes) -> Key:
    """Prepare a key for encoding under its number."""
    return Key(KEY.pack(number, hashed, len(key)), key)


def key_numbers(events: bytes | bytearray) -> set[int]:
    """Return the numbers of all keys of consecutive events (`EVENT`)."""
    words = array("I")
    words.frombytes(events)
    if sys.byteorder == "big":
        words.byteswap()
    words_per_event = EVENT.size // words.itemsize
    return set(words[words_per_event - 1 :: words_per_event])


def encode_run(
    sender: Sender, number: int, places: Sequence[Place], events: bytes | bytearray, keys: Sequence[Key]
) -> bytes:
    """Encode the value of an audit record: a run of consecutive events (`EVENT`), and their keys, by number.

    The first event has this number.
    """
    count = len(events) // EVENT.size
    assert sum(place.events for place in places) == count, "every event has a place"
    return b"".join(
        [
            RUN.pack(RUN_VERSION, len(places), sender.group_generation, sender.incarnation, number, count),
            encode_names(sender.group, sender.member, sender.topic),
            *itertools.starmap(PLACE.pack, places),
            events,
            KEY_COUNT.pack(len(keys)),
            *[row for row, _ in keys],
            *[key for _, key in keys],
        ]
    )


def encode_events(deliveries: Sequence[Delivery]) -> bytes:
    """Encode a run of events of one member, topic and bucket, event by event."""
    first = deliveries[0]
    sender = Sender(first.group, first.member, first.topic, first.incarnation, first.group_generation)
    spots = [Place(one.generation, one.partition, one.time_ms, 0, one.begin_number) for one in deliveries]
    places = [spot._replace(events=len(list(same))) for spot, same in itertools.groupby(spots)]
    numbers: dict[tuple[int, bytes], int] = {}
    events = [
        EVENT.pack(
            one.offset,
            audit_mark.encode(one.producer, one.sequence),
            one.fingerprint.to_bytes(8, "little"),
            NO_KEY if one.key is None else numbers.setdefault((one.key_hash, one.key), len(numbers)),
        )
        for one in deliveries
    ]
    keys = [numbered_key(number, *key) for key, number in numbers.items()]
    return encode_run(sender, first.number, places, b"".join(events), keys)


def encode_delivery(delivery: Delivery) -> bytes:
    """Encode an event in version 1: the value of an audit record under the record's own key."""
    fixed = FIXED.pack(VERSION, *(getattr(delivery, name) for name in FIXED_FIELDS))
    return fixed + encode_names(delivery.group, delivery.member, delivery.topic)


def decode_events(value: bytes, key: bytes | None = None) -> list[Delivery]:
    """Decode the events of an audit record, of either version. Raises DecodeError. `key`: the audit record's own."""
    if value[:1] != bytes((RUN_VERSION,)):
        return [decode_delivery(value, key)]
    return _decode_run(value)


def decode_delivery(data: bytes, key: bytes | None = None) -> Delivery:
    """Decode an event of version 1. Raises DecodeError."""
    if len(data) < FIXED.size:
        raise DecodeError(f"audit event: {len(data)} bytes where at least {FIXED.size} belong")
    version, *numbers = FIXED.unpack_from(data)
    if version != VERSION:
        raise DecodeError(f"audit event: version {version} is unknown; known is {VERSION}")
    (group, member, topic), _ = decode_names(data, FIXED.size)
    fields: dict[str, int] = dict(zip(FIXED_FIELDS, numbers, strict=True))
    hashed = key_hash(key, fields["partition"])
    return Delivery(**fields, group=group, member=member, topic=topic, key=key, key_hash=hashed)


def decode_names(data: bytes, position: int) -> tuple[tuple[str, str, str], int]:
    """Decode ((group, member, topic), their end). Raises DecodeError."""
    names: list[str] = []
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
    group, member, topic = names
    return (group, member, topic), position


class RunLayout(NamedTuple):
    """A run's shared part, and the start of its events: the part that is read before all events are decoded at once."""

    sender: Sender
    number: int
    events: int
    places: list[Place]
    events_at: int
    key_table_at: int
    """The position of the key count; `KEY` rows follow it."""
    keys: int
    keys_at: int


def read_layout(data: bytes) -> RunLayout:
    """Read the layout of a run.

    Raises DecodeError unless everything before its keys is complete, and its places cover all its events.
    """
    if len(data) < RUN.size:
        raise DecodeError(f"audit run: {len(data)} bytes where at least {RUN.size} belong")
    version, place_count, group_generation, incarnation, number, count = RUN.unpack_from(data)
    if version != RUN_VERSION:
        raise DecodeError(f"audit run: version {version}, and only {RUN_VERSION} is known")
    (group, member, topic), position = decode_names(data, RUN.size)
    events_at = position + place_count * PLACE.size
    key_table_at = events_at + count * EVENT.size
    if key_table_at + KEY_COUNT.size > len(data):
        raise DecodeError(f"audit run: {count} events at {place_count} places do not fit in {len(data)} bytes")
    (keys,) = KEY_COUNT.unpack_from(data, key_table_at)
    keys_at = key_table_at + KEY_COUNT.size + keys * KEY.size
    if keys_at > len(data):
        raise DecodeError(f"audit run: {count} events about {keys} keys do not fit in {len(data)} bytes")
    places = [Place._make(row) for row in PLACE.iter_unpack(data[position:events_at])]
    if sum(place.events for place in places) != count:
        raise DecodeError(f"audit run: its places do not hold {count} events")
    sender = Sender(group, member, topic, incarnation, group_generation)
    return RunLayout(sender, number, count, places, events_at, key_table_at, keys, keys_at)


def _decode_run(data: bytes) -> list[Delivery]:
    layout = read_layout(data)
    sender, number, places = layout.sender, layout.number, layout.places
    keys = _decode_keys(data, layout)
    spots = itertools.chain.from_iterable(itertools.repeat(place, place.events) for place in places)
    events = EVENT.iter_unpack(data[layout.events_at : layout.key_table_at])
    found = []
    for index, (place, event) in enumerate(zip(spots, events, strict=True)):
        offset, mark, prefix, key_number = event
        producer, sequence = audit_mark.decode(mark)
        if key_number != NO_KEY and key_number not in keys:
            raise DecodeError(f"audit run: an event names key {key_number}, which does not exist")
        hashed, key = keys[key_number] if key_number != NO_KEY else (key_hash(None, place.partition), None)
        found.append(
            Delivery(
                generation=place.generation,
                partition=place.partition,
                offset=offset,
                producer=producer,
                sequence=sequence,
                fingerprint=int.from_bytes(prefix, "little"),
                time_ms=place.time_ms,
                incarnation=sender.incarnation,
                group=sender.group,
                member=sender.member,
                topic=sender.topic,
                group_generation=sender.group_generation,
                number=number + index if number >= 0 else NO_NUMBER,
                begin_number=place.begin_number,
                key=key,
                key_hash=hashed,
            )
        )
    return found


def _decode_keys(data: bytes, layout: RunLayout) -> dict[int, tuple[int, bytes]]:
    """Decode the keys: number -> (hash, key)."""
    keys: dict[int, tuple[int, bytes]] = {}
    position, newest = layout.keys_at, -1
    for number, hashed, length in KEY.iter_unpack(data[layout.key_table_at + KEY_COUNT.size : position]):
        if number <= newest or position + length > len(data):
            raise DecodeError(f"audit run: key {number} of {length} bytes is cut off, or behind key {newest}")
        keys[number] = hashed, data[position : position + length]
        position, newest = position + length, number
    if position != len(data):
        raise DecodeError(f"audit run: {len(data) - position} bytes behind its keys")
    return keys
