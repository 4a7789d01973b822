"""Stored records have audit numbers without gaps or duplicates, whatever failed between them.

Method: the real accumulator, against leaders that answer what the test says, and in the world of `test_switch`, where
a seed decides what fails.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from anabranch.clients.producer.audit_marks import AuditMarks
from anabranch.clients.producer.producer_record import Record
from anabranch.clients.producer.queues import Batch
from anabranch.protocol import audit_mark
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch import read_header
from anabranch.protocol.records.record import iter_records
from tests.clients.producer.bench import AccumulatorBench
from tests.clients.producer.world import TOPIC, Receipt, Request, World

KEYS = (1, 3)
SEEDS = 60

Mark = tuple[int, int]


def mark_of(headers: Any) -> Mark:
    ((name, value),) = headers
    assert name == audit_mark.HEADER
    return audit_mark.decode(value)


class Bench(AccumulatorBench):
    """A producer of one partition that numbers; each record is a batch."""

    def __init__(self) -> None:
        super().__init__(batch_bytes=1, delivery_timeout_ms=1000)
        self.adopt((0, 1))
        self.marks = self.accumulator.delivery.marks = AuditMarks(random.Random(1))

    def send(self, key: bytes = b"k") -> Receipt:
        receipt = self.append(0, key, b"v", (self.marks.next_header("t", key),))
        self.marks.on_accepted("t", key, transactional=True)
        return receipt

    def batches(self, *, leader: int = 0) -> list[Batch]:
        """What goes out now; one partition after the other, one batch of each at a time."""
        found: list[Batch] = []
        while more := super().batches(leader=leader):
            found += more
        return found

    def stored(self, key: bytes = b"k") -> Mark:
        """Send a record that is stored; its mark."""
        self.send(key)
        (batch,) = self.batches()
        self.answer(batch)
        return seen(batch)


def seen(batch: Batch) -> Mark:
    """The mark that travels."""
    (record,) = iter_records(batch.bytes_with("none"))
    return mark_of(record.headers)


def test_records_of_a_key_are_numbered_from_0() -> None:
    bench = Bench()
    marks = [bench.stored(key) for key in (b"k", b"j", b"k", b"k", b"j")]
    assert [number for _, number in marks] == [0, 0, 1, 2, 1]
    assert len({identity for identity, _ in marks}) == 1


def test_records_that_expire_in_a_row_are_one_break() -> None:
    bench = Bench()
    for expired in (2, 3):
        for _ in range(expired):
            bench.send()
        bench.now += 2.0
        assert bench.batches() == []
        bench.stored()
    assert [one.after for one in bench.marks._breaks["t", b"k"]] == [1, 5]


def test_failed_record_restarts_numbering_of_its_key_only() -> None:
    bench = Bench()
    first, other = bench.stored(), bench.stored(b"j")
    for _ in range(2):
        bench.send()
        (batch,) = bench.batches()
        bench.answer(batch, ErrorCode.INVALID_RECORD)
    again, then = bench.stored(), bench.stored()
    assert again[0] != first[0]
    assert (again[1], then) == (0, (again[0], 1))
    assert bench.stored(b"j") == (other[0], 1)
    bench.send()
    (batch,) = bench.batches()
    bench.answer(batch, ErrorCode.INVALID_RECORD)
    assert bench.stored()[0] not in (first[0], again[0])


def test_expired_record_restarts_numbering_of_records_behind_it() -> None:
    bench = Bench()
    first = bench.stored()
    late = bench.send()
    bench.now = 0.5
    bench.send()
    assert bench.batches(leader=-1) == []
    bench.now = 1.1
    (batch,) = bench.batches()
    assert late.error is not None
    assert seen(batch)[1] == 0
    assert seen(batch)[0] != first[0]
    bench.answer(batch)
    assert bench.stored() == (seen(batch)[0], 1)


def test_failed_record_restarts_numbering_only_of_records_never_stored() -> None:
    bench = Bench()
    first = bench.stored()
    for _ in range(3):
        bench.send()
    failed, lost, refused = bench.batches()
    bench.accumulator.delivery.on_lost(lost, bench.now)
    bench.answer(failed, ErrorCode.INVALID_RECORD)
    bench.answer(refused, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.now = 0.4
    assert bench.batches() == [lost, refused]
    bench.answer(lost, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.answer(refused, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.now = 0.9
    assert bench.batches() == [lost]
    assert seen(lost) == (first[0], 2)
    bench.answer(lost)
    assert bench.batches() == [refused]
    assert seen(refused)[0] != first[0]
    assert seen(refused)[1] == 0


def test_uncommitted_transaction_restarts_numbering_of_its_keys() -> None:
    bench = Bench()
    bench.marks.begin_transaction()
    first = bench.stored()
    bench.marks.on_committed()
    bench.marks.begin_transaction()
    assert bench.stored() == (first[0], 1)
    bench.marks.begin_transaction()
    again, other = bench.stored(), bench.stored(b"j")
    assert again[0] != first[0]
    assert again[1] == 0
    bench.marks.on_committed()
    bench.marks.begin_transaction()
    assert (bench.stored(), bench.stored(b"j")) == ((again[0], 1), (other[0], 1))


class Timed(AuditMarks):
    """Records when each record last got its mark."""

    def __init__(self, world: MarkedWorld, seed: int) -> None:
        super().__init__(random.Random(seed))
        self._world = world
        self.applied_at: dict[int, int] = {}

    def apply(self, batch: Batch) -> None:
        super().apply(batch)
        self.applied_at.update((int(record.value or b""), self._world.tick()) for record in batch.records)

    def missing(self, topic: str, records: Iterable[Record]) -> None:
        super().missing(topic, records)
        self._world.failed_at.update((int(record.value or b""), self._world.tick()) for record in records)


class MarkedWorld(World):
    """Records are numbered, and leaders refuse some of them for good."""

    def __init__(self, counts: Sequence[int], seed: int) -> None:
        super().__init__(counts, random.Random(seed), expiring=True)
        self._ticks = 0
        self.failed_at: dict[int, int] = {}
        self.marks = self.accumulator.delivery.marks = Timed(self, seed)
        self.refusals = 6
        self.seen: dict[int, Mark] = {}

    def tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def send(self, key_hash: int, route: int | None = None) -> None:
        number, key, receipt = len(self.sent), str(key_hash).encode(), Receipt()
        headers = (self.marks.next_header(TOPIC, key),)
        topic = self.accumulator.topic(TOPIC)
        self.accumulator.append(topic, key_hash, key, str(number).encode(), headers, 0, receipt, self.now)
        self.marks.on_accepted(TOPIC, key, transactional=False)
        self.sent.append((key_hash, number, receipt))

    def _with_faults(self, request: Request) -> tuple[ErrorCode, int, int]:
        leader = self.leaders.get(request.partition)
        refusable = leader is not None and self._in_sequence(leader, read_header(request.data))
        if self.refusals and refusable and not request.batch.doubtful and self.rng.random() < 0.1:
            self.refusals -= 1
            return ErrorCode.INVALID_RECORD, -1, -1
        return super()._with_faults(request)

    def receive(self, request: Request) -> tuple[ErrorCode, int, int]:
        answer = super().receive(request)
        if answer[0] is ErrorCode.NONE:
            for record in iter_records(request.data):
                self.seen.setdefault(int(record.value or b""), mark_of(record.headers))
        return answer

    def of_key(self, key_hash: int) -> list[int]:
        return [number for key, number, _ in self.sent if key == key_hash]


@pytest.mark.parametrize("counts", [(1,), (1, 2, 1), (4, 6, 8, 5)], ids=str)
def test_only_failed_records_that_others_overtook_leave_gaps_in_numbering(
    counts: tuple[int, ...],
) -> None:
    begun_again = holes = 0
    for seed in range(SEEDS):
        world = MarkedWorld(counts, seed)
        world.run(keys=KEYS, records=30, steps=300)
        for key in KEYS:
            numbers = world.of_key(key)
            marks = {number: world.seen[number] for number in numbers if number in world.seen}
            assert len(set(marks.values())) == len(marks), f"seed {seed}: a number twice"
            last: dict[int, int] = {}
            for number, (identity, sequence) in marks.items():
                before = last.get(identity)
                last[identity] = number
                expected = 0 if before is None else marks[before][1] + 1
                assert sequence >= expected, f"seed {seed}: {key} goes back at #{number}"
                if sequence > expected:
                    holes += 1
                    missing = [one for one in numbers if (-1 if before is None else before) < one < number][-1]
                    assert world.failed_at[missing] > world.marks.applied_at[number], f"seed {seed}: #{number}"
            begun_again += len(last) - 1
    assert begun_again > SEEDS / 10
    assert holes < begun_again / 10
