"""A batch leaves when it is full, old enough or flushed, and never before its turn.

Method: through the accumulator, with a clock that the test turns; what a resize adds to it is in `test_switch`.
"""

from __future__ import annotations

import pytest

from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch import read_header
from tests.clients.producer.bench import RECORD_BYTES, Bench


def test_batch_lingers_unless_full_or_flushed() -> None:
    bench = Bench(linger_ms=50, batch_bytes=3 * RECORD_BYTES)
    bench.send()
    assert bench.drain().requests == {}
    assert bench.drain().wake_at == pytest.approx(0.05)
    bench.accumulator.hurry = 1
    batch = bench.one()
    bench.answer(batch)
    bench.accumulator.hurry = 0
    for _ in range(3):
        bench.send()
    assert len(bench.one().records) == 3
    bench.send()
    bench.now = 0.05
    assert len(bench.one().records) == 1


def test_full_buffer_does_not_linger() -> None:
    bench = Bench(linger_ms=1000, buffer_bytes=RECORD_BYTES)
    bench.send()
    assert bench.accumulator.full
    bench.answer(bench.one())
    assert not bench.accumulator.full


def test_first_batch_of_partition_is_sent_alone() -> None:
    """K506: a leader without producer state would accept the second one first."""
    bench = Bench(batch_bytes=1)
    bench.send()
    bench.send()
    first = bench.one()
    assert bench.batches() == []
    bench.answer(first)
    second = bench.one()
    assert (first.base_sequence, second.base_sequence) == (0, 1)


def test_at_most_five_batches_are_unresolved_counted_from_oldest() -> None:
    bench = Bench(batch_bytes=1)
    bench.establish()
    for _ in range(8):
        bench.send()
    window = [bench.one() for _ in range(5)]
    assert bench.batches() == []
    bench.answer(window[1])
    assert bench.batches() == [], "the oldest would drop out of the leader's memory"
    bench.answer(window[0])
    assert [bench.one().base_sequence, bench.one().base_sequence] == [6, 7]
    assert bench.batches() == []


def test_without_idempotence_one_batch_is_in_flight_without_sequence() -> None:
    bench = Bench(batch_bytes=1, enable_idempotence=False)
    bench.send()
    bench.send()
    batch = bench.one()
    assert read_header(batch.bytes_with("none")).producer_id == -1
    assert bench.batches() == []
    bench.answer(batch)
    bench.one()


def test_split_halves_count_against_batches_that_leader_remembers() -> None:
    """While the oldest of five is unresolved, no sixth is sent, even if it is a half."""
    bench = Bench(batch_bytes=2 * RECORD_BYTES)
    bench.establish()
    for _ in range(12):
        bench.send()
    batches = [bench.one() for _ in range(5)]
    bench.accumulator.delivery.on_lost(batches[0], bench.now)
    bench.answer(batches[1], ErrorCode.MESSAGE_TOO_LARGE)
    for batch in batches[2:]:
        bench.answer(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.now += 10
    again = []
    while out := bench.batches():
        again += out
    assert [batch.base_sequence for batch in again] == [1, 3, 4, 5, 7]
    bench.answer(again[0])
    assert [bench.one().base_sequence] == [9]
