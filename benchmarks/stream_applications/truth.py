"""The records that the applications of `stream_applications` read, and whether their output is what these imply.

A record is known by its sequence number: key, value and timestamp follow from it. Counts and windows are right if the
last output of each key, or of each key and minute, is the number of records, and no output was higher or lower than one
before. A join is right if each record came out exactly once, with its key's row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.peers import QUIET

COUNTS: Final = "counts"
WINDOWS: Final = "windows"
JOIN: Final = "join"
KINDS: Final = (COUNTS, WINDOWS, JOIN)
MINUTE_MS: Final = 60_000
SPAN_MS: Final = 10 * MINUTE_MS
"""The time between the first record's timestamp and the last one's."""
STRIDE: Final = 7919
"""Consecutive records have keys that are far apart."""
PROBE: Final = b"-1"
FLUSH_S: Final = 120.0
BATCH: Final = 10_000


class WrongOutput(RuntimeError):
    """An application's output is not what its input implies."""


class Records:
    """All records of one run, by sequence number."""

    def __init__(self, keys: int, total: int, first_ms: int) -> None:
        self._keys, self._total, self._first_ms = keys, total, first_ms

    def key(self, sequence: int) -> bytes:
        """The key of a record."""
        return b"key-%07d" % (sequence * STRIDE % self._keys)

    def timestamp_ms(self, sequence: int) -> int:
        """The timestamp of a record: one after the last has the last one's."""
        return self._first_ms + min(sequence, self._total) * SPAN_MS // self._total

    def row(self, key: bytes) -> bytes:
        """The row of a key in the table that is joined."""
        return b"row of " + key

    def send(self, bootstrap: str, topic: str, sequences: Iterable[int]) -> None:
        """Store records, and return when all are acknowledged."""
        _send(bootstrap, topic, ((self.key(one), b"%d" % one, self.timestamp_ms(one)) for one in sequences))

    def send_table(self, bootstrap: str, topic: str) -> None:
        """Store the row of every key, older than all records."""
        keys = (b"key-%07d" % number for number in range(self._keys))
        _send(bootstrap, topic, ((key, self.row(key), self._first_ms - 1) for key in keys))

    def send_probes(self, bootstrap: str, topic: str) -> None:
        """Store a record of every key that no truth counts, as old as the first record."""
        keys = (b"key-%07d" % number for number in range(self._keys))
        _send(bootstrap, topic, ((key, PROBE, self._first_ms) for key in keys))


def _send(bootstrap: str, topic: str, rows: Iterable[tuple[bytes, bytes, int]]) -> None:
    settings = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 20, **QUIET}
    producer = Producer({**settings, "queue.buffering.max.messages": 2_000_000})
    for number, (key, value, at_ms) in enumerate(rows):
        producer.produce(topic, value, key, timestamp=at_ms)
        if number % BATCH == 0:
            producer.poll(0)
    if left := producer.flush(FLUSH_S):
        raise RuntimeError(f"{left} records not delivered")


class CountTruth:
    """The counts of keys, or of keys and minutes."""

    def __init__(self, records: Records, *, by_minute: bool = False) -> None:
        self._records, self._by_minute = records, by_minute
        self._expected: Counter[tuple[bytes, int]] = Counter()
        self._seen: dict[tuple[bytes, int], int] = {}
        self.left = 0
        """How many records' results are missing."""

    def expect(self, sequences: Iterable[int]) -> None:
        """Add records to the input."""
        for one in sequences:
            at_ms = self._records.timestamp_ms(one)
            self._expected[self._records.key(one), at_ms - at_ms % MINUTE_MS if self._by_minute else 0] += 1
            self.left += 1

    def take(self, key: bytes, value: bytes) -> None:
        """Compare one output. Raises WrongOutput if it cannot be right."""
        window, _, count = value.rpartition(b" ")
        place, number = (key, int(window or 0)), int(count)
        before = self._seen.get(place, 0)
        if not before < number <= self._expected[place]:
            raise WrongOutput(f"{place} is {number} after {before}; the input has {self._expected[place]}")
        self._seen[place] = number
        self.left -= number - before


class JoinTruth:
    """Every record once, with its row."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._missing: set[int] = set()
        self.probed: set[bytes] = set()
        """The keys whose probes have come out."""

    @property
    def left(self) -> int:
        """How many records' results are missing."""
        return len(self._missing)

    def expect(self, sequences: Iterable[int]) -> None:
        """Add records to the input."""
        self._missing.update(sequences)

    def take(self, key: bytes, value: bytes) -> None:
        """Compare one output. Raises WrongOutput if it cannot be right."""
        number, _, row = value.partition(b" ")
        if row != self._records.row(key):
            raise WrongOutput(f"{key!r} is joined with {row!r}")
        if number == PROBE:
            self.probed.add(key)
        elif int(number) in self._missing and self._records.key(int(number)) == key:
            self._missing.remove(int(number))
        else:
            raise WrongOutput(f"{key!r}: record {number!r} is there twice, or is not one of this key")


Truth = CountTruth | JoinTruth


def truth_of(kind: str, records: Records) -> Truth:
    """What the application of this kind has to output."""
    return JoinTruth(records) if kind == JOIN else CountTruth(records, by_minute=kind == WINDOWS)


class Output:
    """Reads an output topic from its beginning, committed records only."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": f"{topic}-reader", **QUIET}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed", "fetch.wait.max.ms": 50})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def read(self, timeout_s: float = 0.05) -> list[Any]:
        """The next records: none after `timeout_s` without one."""
        return [one for one in self._consumer.consume(BATCH, timeout_s) if one.error() is None]

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()
