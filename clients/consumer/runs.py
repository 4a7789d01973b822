"""Deliveries that are still to be written down, and the runs of events that they become.

A consumer hands out records much faster than anything could be sent about each of them. Deliveries therefore grow into
runs, by one loop that does as little as possible for each, until somebody takes what there is.
Invariant: the events of a bucket leave in the order of their deliveries, numbered without a hole (`protocol.audit`).
Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from clients.consumer.delivery import ConsumerRecord
from clients.group_metadata import ConsumerGroupMetadata
from protocol import audit
from protocol.audit import Place, Sender
from protocol.hashing import known_hashes

PASS_EVENTS: Final = 100
"""Taken apart as soon as they are there: what was just decoded is still in the processor's cache."""
KEYS_BYTES_MAX: Final = 256 * 1024
"""Of the keys in a run with more than one event: far below what a topic takes by default."""

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
        self._open = _new_runs()
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
            before = [len(run.events) for run in self._open]
            for records in call.records:
                _take_apart(records, self._open)
            for run, count in zip(self._open, before, strict=True):
                if len(run.events) > count:
                    run.places.append(Place(call.generation, call.partition, call.time_ms, len(run.events) - count))

    def _encode(self) -> None:
        """End the runs that are open."""
        for bucket, whole in enumerate(self._open):
            for run in whole.limited():
                assert self._sender is not None, "who has events has a sender"
                number = self._numbers[bucket]
                self._numbers[bucket] += len(run.events)
                value = audit.encode_run(self._sender, number, run.places, run.events, run.keys)
                self._encoded.append((audit.bucket_key(bucket), value))
        self._open = _new_runs()


class _Run:
    """Events of one bucket, and where they were delivered from."""

    __slots__ = ("events", "keys", "places")

    def __init__(self, places: list[Place], events: list[bytes], keys: list[bytes]) -> None:
        self.places = places
        self.events = events
        self.keys = keys

    def limited(self) -> Iterator[_Run]:
        """The same events, halved until their keys are not too large together; nothing if there are none."""
        if len(self.events) > 1 and sum(map(len, self.keys)) > KEYS_BYTES_MAX:
            half = len(self.events) // 2
            before, after = _cut(self.places, half)
            yield from _Run(before, self.events[:half], self.keys[:half]).limited()
            yield from _Run(after, self.events[half:], self.keys[half:]).limited()
        elif self.events:
            yield self


def _new_runs() -> list[_Run]:
    """One for each bucket."""
    return [_Run([], [], []) for _ in range(audit.BUCKETS)]


def _take_apart(records: Sequence[ConsumerRecord], runs: Sequence[_Run]) -> None:
    """One loop, with everything it needs at hand: this is what an audit costs the consumer."""
    pack, digest, header, bare = audit.EVENT.pack, audit.digest, audit.HEADER, audit.NO_MARK
    hashes, size, mask = known_hashes, audit.MARK_BYTES, audit.BUCKETS - 1
    add_event, add_key = [run.events.append for run in runs], [run.keys.append for run in runs]
    for _, partition, offset, _, key, value, headers, _ in records:
        mark = headers[-1][1] if headers and headers[-1][0] == header else _mark(headers)
        if mark is None or len(mark) != size:
            mark = bare
        if key is not None:
            hashed = hashes[key]
            bucket = hashed & mask
            add_event[bucket](pack(offset, mark, digest(value or b""), hashed, len(key)))
            add_key[bucket](key)
        else:
            hashed = audit.key_hash(None, partition)
            bucket = audit.bucket_of(hashed)
            add_event[bucket](pack(offset, mark, digest(value or b""), hashed, -1))
            add_key[bucket](b"")


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
