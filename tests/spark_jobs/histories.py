"""Generated delivery histories: a resized topic, a group whose members die, and its deliveries.

Nothing here violates anything; `faults` does. Times and numbers are given at the end, in the order of delivery, so that
a fault is a change to a list.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from anabranch.protocol import audit as wire
from anabranch.protocol import audit_mark
from anabranch.protocol.audit import Delivery
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.linear_hashing import address, base_of
from anabranch.spark_jobs import events
from anabranch.spark_jobs.audit import NO_GROUP
from anabranch.spark_jobs.bucket import Bucket
from anabranch.spark_jobs.checks import check
from anabranch.spark_jobs.events import Events
from anabranch.spark_jobs.pending import Pending, Stored
from anabranch.spark_jobs.scope import FORGET_MS, Scope
from anabranch.spark_jobs.stages import tallies_of
from anabranch.spark_jobs.tallies import Tallies
from anabranch.spark_jobs.verdict import Tally, Violation, judge

TOPIC = "flights"
GROUP = "readers"
ANOTHER = "late-readers"
BEGIN_MS = 1_700_000_000_000
STEP_MS = 7
SKEW_MS = 50 * STEP_MS
PRODUCER = 77


@dataclass
class Handed:
    """One delivery, while it can still be changed."""

    record: Record
    incarnation: int
    group_generation: int
    pause_ms: int = 0
    """How long nothing happened before it."""
    fingerprint: int | None = None
    time_ms: int = 0
    number: int = -1
    begin_number: int = 0
    """Nobody goes back here but by dying: each incarnation begins once."""
    early_ms: int = 0
    """How much earlier than its place says it happened."""
    group: str = GROUP

    @property
    def key(self) -> bytes:
        return self.record.key

    def delivery(self) -> Delivery:
        record = self.record
        return Delivery(
            generation=record.generation,
            partition=record.partition,
            offset=record.offset,
            producer=record.producer,
            sequence=record.sequence,
            fingerprint=wire.fingerprint(record.value) if self.fingerprint is None else self.fingerprint,
            time_ms=self.time_ms,
            incarnation=self.incarnation,
            group=self.group,
            member=f"member-{self.incarnation}",
            topic=record.topic,
            group_generation=self.group_generation,
            number=self.number,
            begin_number=self.begin_number,
            key=record.key,
            key_hash=wire.key_hash(record.key, record.partition),
        )


@dataclass(frozen=True)
class Record:
    """One stored record."""

    key: bytes
    producer: int
    sequence: int
    partition: int
    offset: int
    generation: int

    topic: str = TOPIC

    @property
    def value(self) -> bytes:
        return b"%s/%d" % (self.key, self.sequence)

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """As an auditing producer sets them."""
        return [(audit_mark.HEADER, audit_mark.encode(self.producer, self.sequence))] if self.producer else []


@dataclass
class History:
    """What a topic stores, and what of it was handed out, in order."""

    stored: list[Record] = field(default_factory=list)
    handed: list[Handed] = field(default_factory=list)
    stored_ms: int = BEGIN_MS
    """When the first record was."""

    @property
    def stored_times(self) -> list[int]:
        """When each record was stored."""
        return [self.stored_ms + index * STEP_MS for index in range(len(self.stored))]

    def of_key(self, key: bytes) -> list[int]:
        """Where the first deliveries of a key's records stand."""
        seen: set[int] = set()
        found = []
        for index, one in enumerate(self.handed):
            if one.key == key and one.record.sequence not in seen:
                seen.add(one.record.sequence)
                found.append(index)
        return found

    def at_offsets(self, offsets: Mapping[Record, int], topic: str) -> History:
        """The same where records have got other offsets, in another topic."""
        moved = {one: replace(one, offset=offset, topic=topic) for one, offset in offsets.items()}
        handed = [replace(one, record=moved[one.record]) for one in self.handed]
        return History([moved[one] for one in self.stored], handed, self.stored_ms)

    def timed(self) -> list[Handed]:
        """With times and numbers, in the order of delivery."""
        now_ms = BEGIN_MS
        numbers: defaultdict[tuple[int, int], Iterator[int]] = defaultdict(itertools.count)
        found = []
        for one in self.handed:
            now_ms += STEP_MS + one.pause_ms
            bucket = wire.bucket_of(wire.key_hash(one.key, 0))
            number = next(numbers[one.incarnation, bucket])
            found.append(replace(one, time_ms=now_ms - one.early_ms, number=number))
        return found


def make(
    rng: random.Random,
    *,
    keys: int = 12,
    records: int = 6,
    counts: Sequence[int] = (2, 4, 2),
    crashes: int = 3,
    numbered: bool = True,
) -> History:
    """`records` of each key in each generation, delivered by members, `crashes` of which die per generation. Every
    other offset is free, like a transaction marker's.
    """
    history = History()
    lineage = Lineage(base_of(counts[0]), list(enumerate(counts)))
    sequences: defaultdict[bytes, Iterator[int]] = defaultdict(itertools.count)
    ends: defaultdict[int, Iterator[int]] = defaultdict(itertools.count)
    incarnations = itertools.count(1)
    group_generations = itertools.count(1)
    for generation, count in enumerate(counts):
        logs: defaultdict[int, list[Record]] = defaultdict(list)
        names = [b"key-%d" % number for number in range(keys)] * records
        rng.shuffle(names)
        for key in names:
            partition = address(wire.key_hash(key, 0), lineage.base, count)
            opened = lineage.class_generation(partition, generation)
            sequence = next(sequences[key])
            mark = (PRODUCER, sequence) if numbered else (audit_mark.NO_PRODUCER, audit_mark.NO_SEQUENCE)
            logs[partition].append(Record(key, *mark, partition, 2 * next(ends[partition]), opened))
        history.stored += [record for log in logs.values() for record in log]
        _deliver(history, rng, logs, crashes, incarnations, group_generations)
    return history


def _deliver(
    history: History,
    rng: random.Random,
    logs: dict[int, list[Record]],
    crashes: int,
    incarnations: Iterator[int],
    group_generations: Iterator[int],
) -> None:
    position = dict.fromkeys(logs, 0)
    committed = dict.fromkeys(logs, 0)
    group_generation = next(group_generations)
    owner = {partition: next(incarnations) for partition in logs}
    total = sum(map(len, logs.values()))
    dying = sorted(rng.sample(range(1, max(total, crashes + 2)), crashes))
    for step in itertools.count():
        open_ones = [partition for partition, log in logs.items() if position[partition] < len(log)]
        if not open_ones:
            return
        if dying and step == dying[0]:
            dying.pop(0)
            partition = rng.choice(sorted(logs))
            group_generation = next(group_generations)
            committed[partition] = rng.randint(committed[partition], position[partition])
            position[partition] = committed[partition]
            owner[partition] = next(incarnations)
            continue
        partition = rng.choice(open_ones)
        # An eager group: everybody goes on in its newest generation.
        history.handed.append(Handed(logs[partition][position[partition]], owner[partition], group_generation))
        position[partition] += 1
        if rng.random() < 0.2:
            committed[partition] = position[partition]


def read_by_another(history: History, *, behind: int) -> History:
    """The same read by a second group, too: each of its deliveries so many places later."""
    shift = 1 + max(one.incarnation for one in history.handed)
    another = [replace(one, incarnation=one.incarnation + shift, group=ANOTHER) for one in history.handed]
    placed = [*enumerate(history.handed), *enumerate(another, behind)]
    return replace(history, handed=[one for _, one in sorted(placed, key=lambda pair: pair[0])])


def skewed(history: History, rng: random.Random) -> History:
    """The same where the clock of each member is ahead or behind."""
    early_ms = {one.incarnation: rng.randint(-SKEW_MS, SKEW_MS) for one in history.handed}
    handed = [replace(one, early_ms=early_ms[one.incarnation]) for one in history.handed]
    return replace(history, handed=handed)


def runs(handed: Iterable[Handed]) -> list[tuple[int, bytes]]:
    """(bucket, audit record), as consumers would write them: up to three deliveries to a record."""
    found: list[tuple[int, bytes]] = []
    waiting: list[Handed] = []
    for one in [*handed, None]:
        fits = (
            one is not None
            and waiting
            and len(waiting) < 3
            and (one.incarnation, one.group_generation) == (waiting[0].incarnation, waiting[0].group_generation)
            and bucket_of(one) == bucket_of(waiting[0])
            and one.number == waiting[-1].number + 1
        )
        if waiting and not fits:
            found.append((bucket_of(waiting[0]), wire.encode_events([each.delivery() for each in waiting])))
            waiting = []
        if one is not None:
            waiting.append(one)
    return found


def bucket_of(one: Handed) -> int:
    return bucket_of_key(one.key)


def bucket_of_key(key: bytes) -> int:
    return wire.bucket_of(wire.key_hash(key, 0))


# pure audits


@dataclass
class Audited:
    """What the pure checks made of a history."""

    violations: list[Violation]
    tallies: list[Tally]
    keys: int
    forgotten: int

    @property
    def verdict(self) -> dict[str, int]:
        return judge(self.tallies, keys=self.keys, forgotten=self.forgotten)

    @property
    def lines(self) -> list[str]:
        """All of its output, sorted."""
        return sorted([*(one.line() for one in self.violations), *(one.line() for one in self.tallies)])


def audit(
    written: Sequence[tuple[int, bytes]],
    stored: Sequence[Record] | None = None,
    *,
    cuts: Sequence[int] = (),
    restarts: bool = True,
    groups: Sequence[str] = (),
    at_once: bool = False,
    forget_ms: int = FORGET_MS,
) -> Audited:
    """The checks over audit records, in batches that end at `cuts`, with the topic's records in the same portions.
    `at_once`: one batch, like a batch job.
    """
    buckets: defaultdict[int, Bucket] = defaultdict(lambda: Bucket(pending=Pending(keep=at_once)))
    violations: list[Violation] = []
    expect = None if stored is None else stored[0].topic
    scope = Scope(expect, tuple(groups), forget_ms)
    edges = [0, *sorted(cuts), len(written)]
    for begin, end in itertools.pairwise(edges):
        batch = written[begin:end]
        portion = (
            []
            if stored is None
            else stored[_share(begin, written, stored) : _share(end, written, stored) if end < len(written) else None]
        )
        for number in sorted({bucket for bucket, _ in batch} | {_bucket_of(one) for one in portion}):
            values = [value for bucket, value in batch if bucket == number]
            its = [one for one in portion if _bucket_of(one) == number]
            buckets[number].enter(scope)
            violations += check(buckets[number], read(values), as_stored(its) if its else None, expect)
            if restarts:
                buckets[number] = Bucket.unpack(buckets[number].pack())
    heard = sorted({group for bucket in buckets.values() for group in bucket.waiting()}) or [NO_GROUP]
    ended = [bucket.finish(expect, heard) for bucket in buckets.values()]
    rows = [{"tallies": bucket.count()} for bucket in buckets.values()] + [{"tallies": more} for _, more in ended]
    violations += [violation for found, _ in ended for violation in found]
    keys, forgotten = (sum(getattr(one, name) for one in buckets.values()) for name in ("keys", "forgotten"))
    return Audited(violations, tallies_of(rows), keys, forgotten)


def counted_beside(written: Sequence[tuple[int, bytes]], history: History) -> Tallies:
    """What is to be counted beside the checks, repeated audit records included."""
    events = [one for _, value in written for one in wire.decode_events(value)]
    names = sorted({(one.group, one.topic) for one in events})
    found = Tallies()
    found.deliver(
        names,
        {
            "name": np.array([names.index((one.group, one.topic)) for one in events], np.int64),
            "partition": np.array([one.partition for one in events], np.int64),
            "generation": np.array([one.generation for one in events], np.int64),
            "time_ms": np.array([one.time_ms for one in events], np.int64),
        },
    )
    partitions = np.array([one.partition for one in history.stored], np.int64)
    found.store(history.stored[0].topic, partitions, np.array(history.stored_times, np.int64))
    return found


def read(values: Sequence[bytes]) -> Events:
    return events.read(values, [None] * len(values))


def as_stored(records: Sequence[Record]) -> Stored:
    """In the order of their offsets in each partition."""
    return Stored(
        partition=np.array([one.partition for one in records], np.int64),
        offset=np.array([one.offset for one in records], np.int64),
        producer=np.array([one.producer for one in records], np.uint64),
        sequence=np.array([one.sequence if one.producer else -1 for one in records], np.int64),
        fingerprint=np.array([wire.fingerprint(one.value) for one in records], np.uint64),
        keys=[one.key for one in records],
    )


def _bucket_of(record: Record) -> int:
    return wire.bucket_of(wire.key_hash(record.key, 0))


def _share(at: int, written: Sequence[tuple[int, bytes]], stored: Sequence[Record]) -> int:
    return len(stored) * at // max(len(written), 1)
