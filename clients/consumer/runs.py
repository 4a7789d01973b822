"""Deliveries that are still to be written down, and the runs of events that they become.

A consumer hands out records much faster than anything could be sent about each of them. Deliveries therefore grow into
runs, by one loop that does as little as possible for each, until somebody takes what there is. What a key decides, its
bucket above all, is looked up, because keys come again and again.
Invariant: the events of a bucket leave in the order of their deliveries, numbered without a hole (`protocol.audit`).
Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from clients.consumer.delivery import ConsumerRecord
from clients.group_metadata import ConsumerGroupMetadata
from protocol import audit
from protocol.audit import Place, Sender
from protocol.hashing import murmur2

PASS_EVENTS: Final = 100
"""Taken apart as soon as they are there: what was just decoded is still in the processor's cache."""
RUN_BYTES_MAX: Final = 256 * 1024
"""Of the events and entries in a run with more than one: far below what a topic takes by default."""

KNOWN_KEYS_MAX: Final = 1 << 16
KNOWN_KEY_BYTES_MAX: Final = 256
"""Longer keys are not remembered."""

_generation: Final = attrgetter("generation")


class Call(NamedTuple):
    """Records that the application got of one segment at one moment."""

    sender: Sender
    generation: int
    partition: int
    time_ms: int
    records: list[Sequence[ConsumerRecord]]


class EventRuns:
    """The events of one member, for as long as it lives."""

    def __init__(self, group: str, incarnation: int) -> None:
        self._group = group
        self._incarnation = incarnation
        self._calls: list[Call] = []
        self._noted = 0
        self._sender: Sender | None = None
        self._open = [_Run([], bytearray(), []) for _ in range(audit.BUCKETS)]
        self._writers = _Writers(self._open)
        self._encoded: list[tuple[bytes, bytes]] = []
        self._numbers = [0] * audit.BUCKETS
        self.waiting = 0
        """Events that nobody has taken yet."""

    def note(self, records: Sequence[ConsumerRecord], owner: ConsumerGroupMetadata, time_ms: int) -> None:
        """Records of one partition are handed out to `owner`."""
        topic, partition, *_, generation = records[0]
        sender = Sender(self._group, owner.member_id, topic, self._incarnation, owner.generation_id)
        if records[-1].generation == generation:
            self._add(Call(sender, generation, partition, time_ms, [records]))
        else:
            for its_generation, of_segment in itertools.groupby(records, _generation):
                self._add(Call(sender, its_generation, partition, time_ms, [list(of_segment)]))
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
            before = [len(run.entries) for run in self._open]
            for records in call.records:
                self._writers.write(records)
            for run, count in zip(self._open, before, strict=True):
                if len(run.entries) > count:
                    run.places.append(Place(call.generation, call.partition, call.time_ms, len(run.entries) - count))

    def _encode(self) -> None:
        """End the runs that are open."""
        for bucket, whole in enumerate(self._open):
            for run in whole.limited():
                assert self._sender is not None, "who has events has a sender"
                number = self._numbers[bucket]
                self._numbers[bucket] += len(run.entries)
                value = audit.encode_run(self._sender, number, run.places, run.events, run.entries)
                self._encoded.append((audit.bucket_key(bucket), value))
            whole.clear()


class _Run:
    """Events of one bucket, the entries of their keys, and where they were delivered from."""

    __slots__ = ("entries", "events", "places")

    def __init__(self, places: list[Place], events: bytearray, entries: list[bytes]) -> None:
        self.places = places
        self.events = events
        self.entries = entries

    def clear(self) -> None:
        """Begin anew: who adds to it goes on."""
        self.places.clear()
        self.events.clear()
        self.entries.clear()

    def limited(self) -> Iterator[_Run]:
        """The same events, halved until they are not too large together; nothing if there are none."""
        if len(self.entries) > 1 and len(self.events) + sum(map(len, self.entries)) > RUN_BYTES_MAX:
            half = len(self.entries) // 2
            before, after = _cut(self.places, half)
            middle = half * audit.EVENT.size
            yield from _Run(before, self.events[:middle], self.entries[:half]).limited()
            yield from _Run(after, self.events[middle:], self.entries[half:]).limited()
        elif self.entries:
            yield self


_Writer = tuple[Callable[[bytes], None], Callable[[bytes], None], bytes]
"""How to add to the run of a key: `add_event`, `add_entry`, the entry. A bare tuple, because those are unpacked much
faster than named ones."""


class _Writers(dict[bytes, _Writer]):
    """Turns records into events of the open runs, by the writers of their keys.

    This is what an audit costs the consumer, so there are two ways: a short one for records as an auditing producer
    sends them, and a patient one, for the rest of a pass in which one is found that is not.
    """

    def __init__(self, runs: Sequence[_Run]) -> None:
        super().__init__()
        self._runs = runs

    def __missing__(self, key: bytes) -> _Writer:
        key_hash = murmur2(key)
        run = self._runs[audit.bucket_of(key_hash)]
        writer = (run.events.extend, run.entries.append, audit.encode_entry(key_hash, key))
        if len(key) <= KNOWN_KEY_BYTES_MAX:
            if len(self) >= KNOWN_KEYS_MAX:
                self.clear()
            self[key] = writer
        return writer

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
        for _, _, offset, _, key, value, ((name, mark),), _ in records:
            if name != header or len(mark) != mark_bytes:
                raise ValueError("not the header of an audit")
            add_event, add_entry, entry = self[key]
            add_event(pack(offset, mark, digest(value)))
            add_entry(entry)

    def _write_any(self, records: Sequence[ConsumerRecord]) -> None:
        pack, digest = audit.EVENT.pack, audit.digest
        for _, partition, offset, _, key, value, headers, _ in records:
            event = pack(offset, audit.sound_mark(_mark(headers)), digest(value or b""))
            if key is None:
                run = self._runs[audit.bucket_of(audit.key_hash(None, partition))]
                run.events.extend(event)
                run.entries.append(b"")
            else:
                add_event, add_entry, entry = self[key]
                add_event(event)
                add_entry(entry)

    def _events(self) -> int:
        return sum([len(run.entries) for run in self._runs])


def _mark(headers: Sequence[tuple[str, bytes | None]]) -> bytes | None:
    """The newest audit header. Who has none, or a damaged one, counts as sent by a producer that does not number."""
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
