"""Metrics of a producer: each record counts once, and a stall is as long as a switch delays keys."""

from __future__ import annotations

from anabranch.protocol.errors import ErrorCode
from tests.clients.producer.bench import AccumulatorBench

GENERATIONS = ((0, 1), (1, 2))


class Bench(AccumulatorBench):
    """A producer whose topic has one partition, and later two."""

    def __init__(self) -> None:
        super().__init__(batch_bytes=1, delivery_timeout_ms=10_000)
        self.adopt(*GENERATIONS[:1])

    def send(self, *hashes: int) -> None:
        for key_hash in hashes:
            self.append(key_hash, b"k", b"v")


def test_records_are_in_flight_acknowledged_or_failed() -> None:
    bench = Bench()
    bench.send(0, 0, 0, 0)
    metrics = bench.accumulator.metrics()
    assert (metrics.records_sent, metrics.records_acknowledged, metrics.records_failed) == (4, 0, 0)
    assert metrics.buffered_bytes == 4 * 16
    (first,) = bench.batches()
    bench.answer(first)
    (second,) = bench.batches()[:1]
    bench.answer(second, ErrorCode.MESSAGE_TOO_LARGE)
    metrics = bench.accumulator.metrics()
    assert (metrics.records_sent, metrics.records_acknowledged, metrics.records_failed) == (4, 1, 1)
    bench.now = 20
    bench.batches()  # the rest is too old
    metrics = bench.accumulator.metrics()
    assert (metrics.records_acknowledged, metrics.records_failed, metrics.buffered_bytes) == (1, 3, 0)
    assert (metrics.switches, metrics.stalls) == (0, 0)


def test_stall_lasts_from_refusal_until_every_record_has_a_partition() -> None:
    bench = Bench()
    bench.send(0, 1)
    (refused,) = bench.batches()
    bench.answer(refused, ErrorCode.INVALID_PARTITION_METADATA, generation=1)
    bench.now = 1.0
    bench.batches()
    metrics = bench.accumulator.metrics()
    assert (metrics.batches_refused, metrics.records_rehashed, metrics.stalls) == (1, 0, 0)
    bench.now = 1.25
    bench.adopt(*GENERATIONS)
    bench.batches()
    metrics = bench.accumulator.metrics()
    assert (metrics.switches, metrics.records_rehashed) == (1, 2)
    assert (metrics.stalls, metrics.last_stall_ms, metrics.longest_stall_ms) == (1, 250.0, 250.0)


def test_keys_stall_while_their_older_records_are_unresolved() -> None:
    bench = Bench()
    bench.send(0)
    (unresolved,) = bench.batches()
    bench.adopt(*GENERATIONS)
    bench.send(0, 1)
    for now in (0.0, 0.25):
        bench.now = now
        assert bench.batches() == []
    bench.now = 0.5
    bench.answer(unresolved)
    assert len(bench.batches()) == 2
    metrics = bench.accumulator.metrics()
    assert (metrics.records_sent, metrics.records_acknowledged, metrics.records_rehashed) == (3, 1, 0)
    assert (metrics.stalls, metrics.longest_stall_ms) == (1, 500.0)


def test_switch_without_waiting_records_is_no_stall() -> None:
    bench = Bench()
    bench.send(0)
    bench.answer(bench.batches()[0])
    bench.batches()
    bench.adopt(*GENERATIONS)
    bench.batches()
    metrics = bench.accumulator.metrics()
    assert (metrics.switches, metrics.stalls, metrics.records_rehashed) == (1, 0, 0)
