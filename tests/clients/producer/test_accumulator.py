"""Accepted records leave in batches, unchanged, and within the limits of a request.

The switch to another generation has its own file; here the topic stands still.
"""

from __future__ import annotations

from anabranch.clients.producer.routes import explicit_route
from anabranch.protocol.records.batch import read_header
from anabranch.protocol.records.record import iter_records
from tests.clients.producer.bench import RECORD_BYTES, Bench
from tests.clients.producer.world import Receipt


def test_records_are_sent_unchanged() -> None:
    bench = Bench()
    receipt = Receipt()
    headers = (("h", b"1"), ("n", None))
    bench.accumulator.append(bench.topic, explicit_route(0), b"k", b"v", headers, 42, receipt, 0.0)
    batch = bench.one()
    data = batch.bytes_with("lz4")
    header = read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 0)
    (record,) = iter_records(data)
    assert (record.key, record.value, record.headers, record.timestamp_ms) == (b"k", b"v", headers, 42)
    bench.answer(batch, offset=9)
    assert receipt.metadata == ("t", 0, 9, 42)
    assert bench.accumulator.outstanding == bench.accumulator.buffered_bytes == 0


def test_batch_is_limited_by_size_and_large_record_is_sent_alone() -> None:
    bench = Bench(batch_bytes=2 * RECORD_BYTES)
    bench.establish()
    for value in (b"0123456789", b"0123456789", b"0123456789", b"x" * 500, b"0123456789"):
        bench.send(value=value)
    sizes = []
    while batches := bench.batches():
        sizes += [len(batch.records) for batch in batches]
    assert sizes == [2, 1, 1, 1]


def test_nothing_is_sent_without_producer_id() -> None:
    bench = Bench()
    bench.accumulator.numbering.producer_id = -1
    bench.send()
    assert bench.batches() == []
    assert bench.accumulator.numbering.wants_producer_id


def test_request_has_one_batch_per_partition_and_size_limit() -> None:
    bench = Bench(partitions=4, batch_bytes=1, request_bytes_max=2 * RECORD_BYTES)
    for partition in (0, 0, 1, 2, 3):
        bench.send(partition)
    first = bench.drain().requests[0]
    second = bench.drain().requests[0]
    assert len(first) == len(second) == 2
    assert {batch.queue.index for batch in (*first, *second)} == {0, 1, 2, 3}


def test_unknown_leader_requests_metadata() -> None:
    bench = Bench()
    bench.send()
    drained = bench.drain(leader=-1)
    assert drained.refresh
    assert drained.requests == {}
    assert bench.drain().requests


def test_keyless_records_change_partition_with_each_batch() -> None:
    bench = Bench(partitions=3, batch_bytes=2 * RECORD_BYTES)
    for _ in range(60):
        bench.send(None)
    counts = {index: sum(len(b.records) for b in queue.waiting) for index, queue in bench.topic.queues.items()}
    assert sum(counts.values()) == 60
    assert set(counts) == {0, 1, 2}


def test_batches_of_other_records_do_not_change_the_partition_of_keyless_ones() -> None:
    bench = Bench(partitions=3, batch_bytes=2 * RECORD_BYTES)
    bench.send(None)
    ((keyless, queue),) = bench.topic.queues.items()
    for _ in range(3):
        bench.send((keyless + 1) % 3)
    bench.send(None)
    assert [len(batch.records) for batch in queue.waiting] == [2]
