"""Deliveries that are still to be written down, and the runs of events that they become.

A consumer hands out records much faster than anything could be sent about each of them. Deliveries therefore grow into
runs, by one loop that does as little as possible for each, until the audit takes what there is. What a key decides, its
bucket above all, is looked up, because keys come again and again.
Invariant: the events of a bucket leave in the order of their deliveries, numbered without a hole (`protocol.audit`).
Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.protocol import audit
from anabranch.protocol.audit import Key, Place, Sender
from anabranch.protocol.hashing import murmur2

PASS_EVENTS: Final = 100
"""Taken apart as soon as they are there: what was just decoded is still in the processor's cache."""
RUN_BYTES_MAX: Final = 256 * 1024
"""Of a run with more than one event, were its longest key with each: far below what a topic takes by default, and what
readers take (`audit.KEYS_BYTES_MAX`)."""
KNOWN_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of the keys that are remembered from run to run, with what is known of them."""
KEY_COST_BYTES: Final = 256
"""About what is known of a key, besides itself."""

_generation: Final = attrgetter("generation")


class Call(NamedTuple):
    """Records that the application got of one segment at one moment."""

    sender: Sender
    generation: int
    partition: int
    time_ms: int
    begun: int
    records: list[Sequence[ConsumerRecord]]


class EventRuns:
    """The events of one member, for as long as it lives."""

    def __init__(self, group: str, incarnation: int) -> None:
        self._group = group
        self._incarnation = incarnation
        self._calls: list[Call] = []
        self._noted = 0
        self._sender: Sender | None = None
        self._open = [_Run([], bytearray()) for _ in range(audit.BUCKETS)]
        self._writers = _Writers([run.events for run in self._open])
        self._encoded: list[tuple[bytes, bytes]] = []
        self._numbers = [0] * audit.BUCKETS
        self.waiting = 0
        """Events that were not taken yet."""

    def note(self, records: Sequence[ConsumerRecord], owner: ConsumerGroupMetadata, time_ms: int, begun: int) -> None:
        """Records of one partition are handed out to `owner`, who has `begun` to read there (`PartitionProgress`)."""
        topic, partition, *_, generation = records[0]
        sender = Sender(self._group, owner.member_id, topic, self._incarnation, owner.generation_id)
        if records[-1].generation == generation:
            self._add(Call(sender, generation, partition, time_ms, begun, [records]))
        else:
            for its_generation, of_segment in itertools.groupby(records, _generation):
                self._add(Call(sender, its_generation, partition, time_ms, begun, [list(of_segment)]))
        self.waiting += len(records)
        self._noted += len(records)
        if self._noted >= PASS_EVENTS:
            self._take_apart()

    def take(self) -> list[tuple[bytes, bytes]]:
        """Everything noted since the last time, as keys and values of audit records."""
        self._take_apart()
        self._encode()
        encoded, self._encoded, self.waiting = self._encoded, [], 0
        return encoded

    def _add(self, call: Call) -> None:
        last = self._calls[-1] if self._calls else None
        if last is not None and last[:-1] == call[:-1]:
            last.records.extend(call.records)
        else:
            self._calls.append(call)

    def _take_apart(self) -> None:
        calls, self._calls, self._noted = self._calls, [], 0
        for call in calls:
            if call.sender != self._sender:
                self._encode()
                self._sender = call.sender
            before = [run.count for run in self._open]
            for records in call.records:
                self._writers.write(records)
            for run, count in zip(self._open, before, strict=True):
                if run.count > count:
                    events = run.count - count
                    run.places.append(Place(call.generation, call.partition, call.time_ms, events, call.begun))

    def _encode(self) -> None:
        """End the runs that are open."""
        for bucket, whole in enumerate(self._open):
            for run, keys in whole.limited(self._writers.keys):
                assert self._sender is not None, "events have a sender"
                number = self._numbers[bucket]
                self._numbers[bucket] += run.count
                value = audit.encode_run(self._sender, number, run.places, run.events, keys)
                self._encoded.append((audit.bucket_key(bucket), value))
            whole.clear()
        self._writers.forget()


class _Run:
    """Events of one bucket, and where they were delivered from."""

    __slots__ = ("events", "places")

    def __init__(self, places: list[Place], events: bytearray) -> None:
        self.places = places
        self.events = events

    @property
    def count(self) -> int:
        """How many events there are."""
        return len(self.events) // audit.EVENT.size

    def clear(self) -> None:
        """Begin anew, in the same objects."""
        self.places.clear()
        self.events.clear()

    def limited(self, known: Sequence[Key]) -> Iterator[tuple[_Run, list[Key]]]:
        """The same events, halved until they are not too large with their keys; nothing if there are none."""
        keys = [known[number] for number in sorted(audit.key_numbers(self.events) - {audit.NO_KEY})]
        longest = max([len(key) for _, key in keys], default=0)
        if self.count > 1 and self.count * (audit.EVENT.size + longest) > RUN_BYTES_MAX:
            half = self.count // 2
            before, after = _cut(self.places, half)
            yield from _Run(before, self.events[: half * audit.EVENT.size]).limited(known)
            yield from _Run(after, self.events[half * audit.EVENT.size :]).limited(known)
        elif self.events:
            yield self, keys


_Writer = tuple[Callable[[bytes], None], int]
"""How to add an event about a key to its run, and the key's number. A bare tuple, because those are unpacked much
faster than named ones."""


class _Writers:
    """Turns records into events of the open runs, by the writers of their keys.

    This is what an audit costs the consumer, so there are two ways: a short one for records as an auditing producer
    sends them, and a patient one, for the rest of a pass in which one is found that is not.
    """

    def __init__(self, runs: Sequence[bytearray]) -> None:
        self._runs = runs
        self._adds: list[Callable[[bytes], None]] = [run.extend for run in runs]
        self._known: dict[bytes, _Writer] = {}
        self._known_bytes = 0
        self.keys: list[Key] = []
        """Those that are known, by number."""

    def forget(self) -> None:
        """No run is open, so what is known of keys may go, if it is much."""
        if self._known_bytes > KNOWN_BYTES_MAX:
            self._known.clear()
            self.keys.clear()
            self._known_bytes = 0

    def write(self, records: Sequence[ConsumerRecord]) -> None:
        """Add an event for each record."""
        before = self._events()
        try:
            self._write_numbered(records)
        except (TypeError, ValueError):
            self._write_any(records[self._events() - before :])

    def _write_numbered(self, records: Sequence[Any]) -> None:
        """Records with a key, a value and the audit header alone; ends with TypeError or ValueError at any other."""
        pack, digest, header, mark_bytes = audit.EVENT.pack, audit.digest, audit.HEADER, audit.MARK_BYTES
        known = self._known
        for _, _, offset, _, key, value, ((name, mark),), _ in records:
            if name != header or len(mark) != mark_bytes:
                raise ValueError("not the header of an audit")
            try:
                add, number = known[key]
            except KeyError:
                add, number = self._writer(key)
            add(pack(offset, mark, digest(value), number))

    def _write_any(self, records: Sequence[ConsumerRecord]) -> None:
        pack, digest = audit.EVENT.pack, audit.digest
        for _, partition, offset, _, key, value, headers, _ in records:
            if key is None:
                add, number = self._adds[audit.bucket_of(audit.key_hash(None, partition))], audit.NO_KEY
            else:
                add, number = self._known.get(key) or self._writer(key)
            add(pack(offset, audit.sound_mark(_mark(headers)), digest(value or b""), number))

    def _writer(self, key: bytes) -> _Writer:
        """That of a key that is not known, which it is from now on."""
        key_hash = murmur2(key)
        writer = self._known[key] = self._adds[audit.bucket_of(key_hash)], len(self.keys)
        self.keys.append(audit.numbered_key(len(self.keys), key_hash, key))
        self._known_bytes += KEY_COST_BYTES + len(key)
        return writer

    def _events(self) -> int:
        return sum(map(len, self._runs)) // audit.EVENT.size


def _mark(headers: Sequence[tuple[str, bytes | None]]) -> bytes | None:
    """The newest audit header; None without a sound one, as of a producer that does not number its records."""
    return next((value for name, value in reversed(headers) if name == audit.HEADER), None)


def _cut(places: Sequence[Place], at: int) -> tuple[list[Place], list[Place]]:
    """The places of the first so many events, and of the rest."""
    before, after = [], []
    for place in places:
        first = min(place.events, at)
        at -= first
        before += [place._replace(events=first)] if first else []
        after += [place._replace(events=place.events - first)] if place.events > first else []
    return before, after
