"""Records without a key leave an unavailable partition, unless they may be stored there already."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.hashing import murmur2
from tests.clients.producer.bench import RECORD_BYTES, Bench
from tests.clients.producer.world import TOPIC, UNKEYED, Receipt, Request, World

KEY = next(b"%d" % n for n in range(100) if murmur2(b"%d" % n) % 2 == 0)


def bench_at_0(**settings: object) -> Bench:
    """Two partitions; records without a key go to the first."""
    bench = Bench(partitions=2, **settings)
    bench.accumulator._stickies["t"]._current = 0
    return bench


def starve(bench: Bench, *partitions: int) -> None:
    bench.accumulator.note_condition("t", leaderless=(), starved=partitions)


def keyed(bench: Bench) -> Receipt:
    receipt = Receipt()
    bench.accumulator.append(bench.topic, murmur2(KEY), KEY, b"v", (), 5, receipt, bench.now)
    return receipt


def waiting(bench: Bench) -> dict[int, list[bytes | None]]:
    """The keys of what waits, by partition."""
    return {
        index: [record.key for batch in queue.waiting for record in batch.records]
        for index, queue in bench.topic.queues.items()
    }


def test_keyless_records_leave_starved_partition_and_keyed_ones_stay() -> None:
    bench = bench_at_0()
    bench.send(None)
    keyed(bench)
    bench.send(None)
    before = bench.accumulator.buffered_bytes
    starve(bench, 0)
    assert waiting(bench) == {0: [KEY], 1: [None, None]}
    assert bench.topic.queue(0).waiting[0].size_bytes == before - 2 * RECORD_BYTES
    assert (bench.accumulator.outstanding, bench.accumulator.buffered_bytes) == (3, before)
    bench.send(None)
    assert waiting(bench)[1] == [None] * 3, "and none follows"


def test_refused_keyless_batch_moves_and_frees_its_sequence_numbers() -> None:
    bench = bench_at_0(batch_bytes=1)
    receipt = bench.send(None)
    batch = bench.one()
    starve(bench, 0)
    assert batch.on_wire and bench.topic.queue(0).unresolved, "it may be stored"
    bench.answer(batch, ErrorCode.NOT_ENOUGH_REPLICAS)
    starve(bench, 0)
    assert not bench.topic.queue(0).unresolved
    moved = bench.one()
    assert (moved.queue.index, moved.base_sequence) == (1, 0)
    bench.answer(moved, offset=7)
    assert receipt.metadata is not None and receipt.metadata[1:3] == (1, 7)
    starve(bench)
    keyed(bench)
    assert bench.one().base_sequence == 0, "in partition 0 nothing was ever stored"


@pytest.mark.parametrize("outcome", ["lost", ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT])
def test_possibly_stored_batch_stays_in_starved_partition(outcome: str | ErrorCode) -> None:
    bench = bench_at_0()
    bench.send(None)
    batch = bench.one()
    if isinstance(outcome, ErrorCode):
        bench.answer(batch, outcome)
    else:
        bench.accumulator.delivery.on_lost(batch, bench.now)
    starve(bench, 0)
    assert list(bench.topic.queue(0).unresolved) == [batch]


def test_batch_before_unresolved_batch_stays_in_starved_partition() -> None:
    bench = bench_at_0(batch_bytes=1)
    bench.establish()
    bench.send(None)
    bench.accumulator._stickies["t"]._current = 0
    keyed(bench)
    bench.now += 1
    first, second = bench.one(), bench.one()
    for batch in (first, second):
        bench.answer(batch, ErrorCode.NOT_ENOUGH_REPLICAS)
    starve(bench, 0)
    assert list(bench.topic.queue(0).unresolved) == [first, second], "the numbers of the second follow the first's"


def test_without_ready_partition_nothing_moves() -> None:
    bench = bench_at_0()
    bench.send(None)
    starve(bench, 0, 1)
    assert waiting(bench)[0] == [None]
    assert bench.topic.keyless == (0, 1)


class HungryWorld(World):
    """Followers come and go too, leaders without enough of them refuse, and half of the records have no key."""

    def __init__(self, counts: Sequence[int], rng: random.Random) -> None:
        super().__init__(counts, rng)
        self.hungry: set[int] = set()
        self.moved = 0

    def receive(self, request: Request) -> tuple[ErrorCode, int, int]:
        if request.partition in self.hungry:
            return ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1
        return super().receive(request)

    def options(self) -> list[tuple[str, Any]]:
        options = super().options()
        if self.faults > 0:
            options.append(("hunger", lambda: self.hungry.add(self.rng.choice(list(self.leaders)))))
        options += [(f"feed {p}", lambda p=p: self.hungry.discard(p)) for p in sorted(self.hungry)]
        return [*options, ("look", self.look)]

    def look(self) -> None:
        topic = self.accumulator.topic(TOPIC)
        live = set(topic.live)
        before = self.accumulator.statistics.rehashed_records
        self.accumulator.note_condition(TOPIC, leaderless=(), starved=self.hungry & live)
        self.moved += self.accumulator.statistics.rehashed_records - before

    def send(self, key_hash: int, route: int | None = None) -> None:
        if self.rng.random() < 0.5:
            super().send(-1, UNKEYED)
        else:
            super().send(key_hash, route)

    def finish(self) -> None:
        self.hungry.clear()
        self.look()
        super().finish()


def test_starvation_schedules_neither_lose_duplicate_nor_reorder_records() -> None:
    """Moved records were in no log; keyed records stay in order, also during resizes."""
    moved = 0
    for seed in range(400):
        world = HungryWorld([(2,), (3, 4), (4, 3, 5)][seed % 3], random.Random(seed))
        try:
            world.run(keys=range(6), records=20, steps=150)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {world.trace}") from error
        moved += world.moved
    assert moved > 200
