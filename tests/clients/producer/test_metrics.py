"""Metrics of a producer: each record counts once, and a stall is as long as a switch delays keys."""

from __future__ import annotations

import random

from anabranch.clients.backoff import Backoff
from anabranch.clients.config import ProducerConfig
from anabranch.clients.producer.accumulator import Accumulator
from anabranch.clients.producer.queues import Batch
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import Lineage
from tests.clients.producer.world import Receipt

LINEAGES = (Lineage(1, [(0, 1)]), Lineage(1, [(0, 1), (1, 2)]))


class Bench:
    """An accumulator whose topic has one partition, and later two."""

    def __init__(self) -> None:
        config = ProducerConfig(linger_ms=0, batch_bytes=1, delivery_timeout_ms=10_000)
        self.accumulator = Accumulator(config, Backoff(initial_ms=100, jitter=0), random.Random(1))
        self.accumulator.numbering.producer_id = 7
        self.accumulator.numbering.wants_producer_id = False
        self.now = 0.0
        self.adopt(0)

    def adopt(self, generation: int) -> None:
        self.accumulator.adopt("t", b"id", LINEAGES[generation], range(generation + 1))

    def send(self, *hashes: int) -> None:
        for key_hash in hashes:
            topic = self.accumulator.topic("t")
            self.accumulator.append(topic, key_hash, b"k", b"v", (), 5, Receipt(), self.now)

    def drain(self) -> list[Batch]:
        drained = self.accumulator.drain(self.now, lambda topic, partition: 0, lambda node: True)
        return [batch for batches in drained.requests.values() for batch in batches]

    def answer(self, batch: Batch, code: ErrorCode = ErrorCode.NONE, generation: int = -1) -> None:
        self.accumulator.complete(batch, code, self.now, base_offset=0, generation=generation)


def test_records_are_in_flight_acknowledged_or_failed() -> None:
    bench = Bench()
    bench.send(0, 0, 0, 0)
    metrics = bench.accumulator.metrics()
    assert (metrics.records_sent, metrics.records_acknowledged, metrics.records_failed) == (4, 0, 0)
    assert metrics.buffered_bytes == 4 * 16
    (first,) = bench.drain()
    bench.answer(first)
    (second,) = bench.drain()[:1]
    bench.answer(second, ErrorCode.MESSAGE_TOO_LARGE)
    metrics = bench.accumulator.metrics()
    assert (metrics.records_sent, metrics.records_acknowledged, metrics.records_failed) == (4, 1, 1)
    bench.now = 20
    bench.drain()  # the rest is too old
    metrics = bench.accumulator.metrics()
    assert (metrics.records_acknowledged, metrics.records_failed, metrics.buffered_bytes) == (1, 3, 0)
    assert (metrics.switches, metrics.stalls) == (0, 0)


def test_stall_lasts_from_refusal_until_every_record_has_a_partition() -> None:
    bench = Bench()
    bench.send(0, 1)
    (refused,) = bench.drain()
    bench.answer(refused, ErrorCode.INVALID_PARTITION_METADATA, generation=1)
    bench.now = 1.0
    bench.drain()
    metrics = bench.accumulator.metrics()
    assert (metrics.batches_refused, metrics.records_rehashed, metrics.stalls) == (1, 0, 0)
    bench.now = 1.25
    bench.adopt(1)
    bench.drain()
    metrics = bench.accumulator.metrics()
    assert (metrics.switches, metrics.records_rehashed) == (1, 2)
    assert (metrics.stalls, metrics.last_stall_ms, metrics.longest_stall_ms) == (1, 250.0, 250.0)


def test_keys_stall_while_their_older_records_are_unresolved() -> None:
    bench = Bench()
    bench.send(0)
    (unresolved,) = bench.drain()
    bench.adopt(1)
    bench.send(0, 1)
    for now in (0.0, 0.25):
        bench.now = now
        assert bench.drain() == []
    bench.now = 0.5
    bench.answer(unresolved)
    assert len(bench.drain()) == 2
    metrics = bench.accumulator.metrics()
    assert (metrics.records_sent, metrics.records_acknowledged, metrics.records_rehashed) == (3, 1, 0)
    assert (metrics.stalls, metrics.longest_stall_ms) == (1, 500.0)


def test_switch_without_waiting_records_is_no_stall() -> None:
    bench = Bench()
    bench.send(0)
    bench.answer(bench.drain()[0])
    bench.drain()
    bench.adopt(1)
    bench.drain()
    metrics = bench.accumulator.metrics()
    assert (metrics.switches, metrics.stalls, metrics.records_rehashed) == (1, 0, 0)
