"""Collects deliveries into runs of audit events.

A consumer delivers records much faster than an event per record could be sent. One loop, which does as little as
possible per delivery, therefore adds them to runs until the audit takes them. Facts about a key, such as its bucket,
are cached, because keys repeat. Invariant: the events of a bucket leave in the order of their deliveries, numbered
without a gap (`protocol.audit`). Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.protocol import audit, audit_mark
from anabranch.protocol.audit import Key, Place, Sender
from anabranch.protocol.hashing import murmur2

PASS_EVENTS: Final = 100
"""Number of events that are encoded at once: records just decoded are still in the processor's cache."""
RUN_BYTES_MAX: Final = 256 * 1024
"""Size limit of a run with several events, counting its longest key for each: far below a topic's default limit, and
below that of readers (`audit.KEYS_BYTES_MAX`)."""
KNOWN_BYTES_MAX: Final = 4 * 1024 * 1024
"""Size limit of the key cache."""
KEY_COST_BYTES: Final = 256
"""Approximate size of a cache entry without its key."""

_generation: Final = attrgetter("generation")


class Call(NamedTuple):
    """Records of one key epoch that were delivered at one moment."""

    sender: Sender
    generation: int
    partition: int
    time_ms: int
    begin_number: int
    records: list[Sequence[ConsumerRecord]]


class EventRuns:
    """The events of one member."""

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
        """The number of pending events."""

    def note(
        self, records: Sequence[ConsumerRecord], owner: ConsumerGroupMetadata, time_ms: int, begin_number: int
    ) -> None:
        """Note records of one partition, delivered to `owner` under the number `begin_number` (`PartitionProgress`)."""
        topic, partition, *_, generation = records[0]
        sender = Sender(self._group, owner.member_id, topic, self._incarnation, owner.generation_id)
        if records[-1].generation == generation:
            self._add(Call(sender, generation, partition, time_ms, begin_number, [records]))
        else:
            for its_generation, of_key_epoch in itertools.groupby(records, _generation):
                self._add(Call(sender, its_generation, partition, time_ms, begin_number, [list(of_key_epoch)]))
        self.waiting += len(records)
        self._noted += len(records)
        if self._noted >= PASS_EVENTS:
            self._take_apart()

    def take(self) -> list[tuple[bytes, bytes]]:
        """Return everything noted since the last call, as keys and values of audit records."""
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
                    run.places.append(Place(call.generation, call.partition, call.time_ms, events, call.begin_number))

    def _encode(self) -> None:
        for bucket, whole in enumerate(self._open):
            for run, keys in whole.split_to_limit(self._writers.keys):
                assert self._sender is not None, "events have a sender"
                number = self._numbers[bucket]
                self._numbers[bucket] += run.count
                value = audit.encode_run(self._sender, number, run.places, run.events, keys)
                self._encoded.append((audit.bucket_key(bucket), value))
            whole.clear()
        self._writers.forget()


class _Run:
    """Events of one bucket, and the places of their deliveries."""

    __slots__ = ("events", "places")

    def __init__(self, places: list[Place], events: bytearray) -> None:
        self.places = places
        self.events = events

    @property
    def count(self) -> int:
        return len(self.events) // audit.EVENT.size

    def clear(self) -> None:
        """Clear for reuse of the same objects."""
        self.places.clear()
        self.events.clear()

    def split_to_limit(self, known: Sequence[Key]) -> Iterator[tuple[_Run, list[Key]]]:
        """Yield the same events, halved until each half fits with its keys; nothing if there are none."""
        keys = [known[number] for number in sorted(audit.key_numbers(self.events) - {audit.NO_KEY})]
        longest = max([len(key) for _, key in keys], default=0)
        if self.count > 1 and self.count * (audit.EVENT.size + longest) > RUN_BYTES_MAX:
            half = self.count // 2
            before, after = _cut(self.places, half)
            yield from _Run(before, self.events[: half * audit.EVENT.size]).split_to_limit(known)
            yield from _Run(after, self.events[half * audit.EVENT.size :]).split_to_limit(known)
        elif self.events:
            yield self, keys


_Writer = tuple[Callable[[bytes], None], int]
"""A function that adds an event about a key to its run, and the key's number. A bare tuple unpacks much faster than a
named one."""


class _Writers:
    """Turns records into events of the open runs, by the writers of their keys.

    This is the audit's cost in a consumer, so there are two ways: a fast one for records of an auditing producer, and a
    slow one for the rest of a pass that contains any other.
    """

    def __init__(self, runs: Sequence[bytearray]) -> None:
        self._runs = runs
        self._adds: list[Callable[[bytes], None]] = [run.extend for run in runs]
        self._known: dict[bytes, _Writer] = {}
        self._known_bytes = 0
        self.keys: list[Key] = []
        """Known keys, by number."""

    def forget(self) -> None:
        """Clear a large key cache; no run may be open."""
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
        """Add records with exactly a key, a value and the audit header; raises TypeError or ValueError at any other."""
        pack, digest, header, mark_bytes = audit.EVENT.pack, audit.digest, audit_mark.HEADER, audit_mark.MARK_BYTES
        known = self._known
        for _, _, offset, _, key, value, ((name, mark),), _ in records:
            if name != header or len(mark) != mark_bytes:
                raise ValueError("not an audit header")
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
            add(pack(offset, audit_mark.sound_mark(_mark(headers)), digest(value or b""), number))

    def _writer(self, key: bytes) -> _Writer:
        """Add an unknown key to the cache and return its writer."""
        key_hash = murmur2(key)
        writer = self._known[key] = self._adds[audit.bucket_of(key_hash)], len(self.keys)
        self.keys.append(audit.numbered_key(len(self.keys), key_hash, key))
        self._known_bytes += KEY_COST_BYTES + len(key)
        return writer

    def _events(self) -> int:
        return sum(map(len, self._runs)) // audit.EVENT.size


def _mark(headers: Sequence[tuple[str, bytes | None]]) -> bytes | None:
    """Return the newest audit header; None without a valid one, as from a producer that does not number its records."""
    return next((value for name, value in reversed(headers) if name == audit_mark.HEADER), None)


def _cut(places: Sequence[Place], at: int) -> tuple[list[Place], list[Place]]:
    """Split the places after this many events."""
    before, after = [], []
    for place in places:
        first = min(place.events, at)
        at -= first
        before += [place._replace(events=first)] if first else []
        after += [place._replace(events=place.events - first)] if place.events > first else []
    return before, after
