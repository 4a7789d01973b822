"""Every outcome of a batch has the right effect on its records and on the sequence numbers.

The switch to another generation has its own file; here the topic stands still.
"""

from __future__ import annotations

import pytest

from anabranch.clients.producer.queues import PRODUCER_EPOCH_MAX
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import read_header
from tests.clients.producer.bench import RECORD_BYTES, Bench
from tests.clients.producer.world import Receipt


def test_receipt_has_log_append_time() -> None:
    bench = Bench()
    receipt = bench.send()
    bench.accumulator.delivery.complete(bench.one(), ErrorCode.NONE, 0.0, base_offset=3, log_append_time_ms=99)
    assert receipt.metadata is not None
    assert receipt.metadata.timestamp_ms == 99


def test_retries_keep_order_and_content() -> None:
    bench = Bench(batch_bytes=1)
    bench.establish()
    for _ in range(3):
        bench.send()
    first, second = bench.one(), bench.one()
    data = first.bytes_with("none")
    bench.answer(first, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert bench.batches() == [], "the third must not overtake the first, which backs off"
    bench.answer(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.now = 0.1
    assert bench.one() is first
    assert first.bytes_with("none") == data
    assert bench.one() is second
    assert bench.accumulator.statistics.epoch_bumps == 0


def test_lost_batches_are_sent_again_and_duplicates_succeed() -> None:
    bench = Bench()
    receipt = bench.send()
    batch = bench.one()
    bench.accumulator.delivery.on_lost(batch, bench.now)
    bench.now = 0.1
    assert bench.one() is batch
    bench.answer(batch, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, offset=4)
    assert receipt.metadata is not None


def test_refusal_fails_its_batch_and_frees_its_sequence_numbers() -> None:
    bench = Bench()
    bench.establish()
    receipt = bench.send()
    bench.accumulator.delivery.complete(bench.one(), ErrorCode.MESSAGE_TOO_LARGE, 0.0, message="too large by 3")
    assert isinstance(receipt.error, KafkaError)
    assert receipt.error.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "too large by 3" in str(receipt.error)
    bench.send()
    batch = bench.one()
    assert (batch.producer_epoch, batch.base_sequence) == (0, 1)


@pytest.mark.parametrize("lost", [True, False])
def test_refusal_of_possibly_stored_batch_does_not_free_its_sequence_numbers(lost: bool) -> None:
    """The leader would take the next batch with these numbers for a duplicate, and not store it."""
    bench = Bench()
    bench.establish()
    bench.send()
    batch = bench.one()
    if lost:
        bench.accumulator.delivery.on_lost(batch, 0.0)
    else:
        bench.answer(batch, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    bench.now = 1
    assert bench.one() is batch
    bench.answer(batch, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    bench.send()
    batch = bench.one()
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)


def test_refusal_before_later_batches_bumps_epoch() -> None:
    """The leader never accepts the sequence numbers of later batches."""
    bench = Bench(batch_bytes=1)
    bench.establish()
    bench.send()
    receipts = [bench.send(), bench.send()]
    refused, second, third = bench.one(), bench.one(), bench.one()
    bench.answer(refused, ErrorCode.INVALID_RECORD)
    assert bench.batches() == [], "what is on the wire must come back first"
    bench.answer(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.answer(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.now = 1
    assert bench.one() is second
    assert (second.producer_epoch, second.base_sequence) == (1, 0)
    bench.answer(second)
    assert bench.one() is third
    assert (third.producer_epoch, third.base_sequence) == (1, 1)
    bench.answer(third)
    assert all(receipt.metadata is not None for receipt in receipts)


def test_refusal_does_not_renumber_possibly_stored_batch() -> None:
    """With other numbers the leader would store it twice."""
    bench = Bench(batch_bytes=1)
    bench.establish()
    unknown, refused, behind = bench.send(), bench.send(), bench.send()
    first, second, third = bench.one(), bench.one(), bench.one()
    bench.answer(first, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    bench.answer(second, ErrorCode.INVALID_RECORD)
    bench.answer(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert refused.error is not None
    bench.now = 1
    assert bench.batches()[0] is first
    assert (first.producer_epoch, first.base_sequence) == (0, 1)
    bench.answer(first, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert unknown.metadata is not None
    bench.answer(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.now = 2
    assert bench.one() is third
    assert (third.producer_epoch, third.base_sequence) == (1, 0)
    bench.answer(third)
    assert behind.metadata is not None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ],
)
def test_sequence_gap_that_cannot_be_filled_bumps_epoch(code: ErrorCode) -> None:
    bench = Bench()
    bench.establish()
    receipt = bench.send()
    batch = bench.one()
    bench.answer(batch, code)
    bench.now = 1
    assert bench.one() is batch
    header = read_header(batch.bytes_with("none"))
    assert (header.producer_epoch, header.base_sequence) == (1, 0)
    bench.answer(batch)
    assert receipt.metadata is not None


def test_exhausted_epoch_requests_new_producer_id() -> None:
    bench = Bench()
    bench.establish()
    bench.topic.queue(0).producer_epoch = PRODUCER_EPOCH_MAX
    bench.send()
    batch = bench.one()
    bench.answer(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.now = 1
    assert bench.batches() == []
    assert bench.accumulator.numbering.wants_producer_id
    bench.accumulator.numbering.producer_id, bench.accumulator.numbering.wants_producer_id = 8, False
    assert bench.one() is batch
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (8, 0, 0)


def test_waiting_records_expire() -> None:
    bench = Bench(delivery_timeout_ms=1000)
    receipt = bench.send()
    drained = bench.drain(ready=False)
    assert drained.requests == {}
    assert drained.wake_at == pytest.approx(1.0)
    bench.now = 1.0
    bench.drain(ready=False)
    assert isinstance(receipt.error, KafkaError)
    assert receipt.error.code == ErrorCode.REQUEST_TIMED_OUT
    assert bench.accumulator.outstanding == bench.accumulator.buffered_bytes == 0


def test_expired_record_names_what_it_waited_for() -> None:
    bench = Bench(delivery_timeout_ms=10_000)

    def late(receipt: Receipt) -> str:
        bench.now += 10
        bench.drain(leader=-1)
        assert isinstance(receipt.error, KafkaError)
        return receipt.error.message.removeprefix("t-0: not stored within 10000 ms: ")

    receipt = bench.send()
    bench.now = 4.0
    bench.accumulator.delivery.obstacle = lambda topic, index: f"{topic}-{index} has no leader"
    bench.drain(leader=-1)
    bench.now = 6.0
    bench.drain(leader=-1)
    bench.now = 0.0
    assert late(receipt) == "t-0 has no leader (for 6.0 s)"
    bench.accumulator.delivery.obstacle = lambda topic, index: ""
    receipt = bench.send()
    bench.answer(bench.one(), ErrorCode.NOT_ENOUGH_REPLICAS)
    assert late(receipt) == "the last response was NOT_ENOUGH_REPLICAS"
    receipt = bench.send()
    silent = bench.one()
    assert late(receipt) == "its leader has not responded yet"
    bench.accumulator.delivery.on_lost(silent, bench.now)
    bench.accumulator.numbering.producer_id, bench.accumulator.numbering.wants_producer_id = -1, True
    bench.topic.queue(0).restart = True
    assert late(bench.send()) == "no broker has allocated a producer id"


def test_record_held_back_by_resize_names_resize_when_it_expires() -> None:
    bench = Bench(delivery_timeout_ms=1000)
    receipt = bench.send(None)
    bench.accumulator.delivery.complete(bench.one(), ErrorCode.INVALID_PARTITION_METADATA, bench.now, generation=1)
    bench.now = 1.0
    bench.drain()
    assert isinstance(receipt.error, KafkaError)
    assert receipt.error.message.endswith("partition 0 was resized, and the metadata is not updated yet")


def test_expiry_of_sent_batch_waits_for_others_and_bumps_epoch() -> None:
    bench = Bench(batch_bytes=1, delivery_timeout_ms=1000)
    bench.establish()
    given_up = bench.send()
    first = bench.one()
    bench.now = 0.5
    later = bench.send()
    second = bench.one()
    bench.now = 1.0
    bench.send()
    assert bench.batches() == []
    assert given_up.error is not None
    bench.answer(first)
    assert given_up.metadata is None, "told once"
    bench.answer(second)
    assert later.metadata is not None
    third = bench.one()
    assert (third.producer_epoch, third.base_sequence) == (1, 0)


def test_abandon_fails_remaining_records() -> None:
    bench = Bench(batch_bytes=1)
    receipts = [bench.send(), bench.send()]
    bench.one()
    bench.accumulator.delivery.abandon(KafkaError(ErrorCode.NETWORK_EXCEPTION, "stopped"))
    assert all(receipt.error is not None for receipt in receipts)
    assert bench.accumulator.outstanding == 0


def test_too_large_batch_is_split_and_halves_have_sequence_numbers() -> None:
    """KIP-126: later batches stay later, and at most five are in flight."""
    bench = Bench(batch_bytes=3 * RECORD_BYTES)
    bench.establish()
    receipts = [bench.send() for _ in range(7)]
    large, second = bench.one(), bench.one()
    assert [len(batch.records) for batch in (large, second)] == [3, 3]
    bench.answer(large, ErrorCode.MESSAGE_TOO_LARGE)
    bench.answer(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.now += 1
    sent = []
    while batches := bench.batches():
        for batch in batches:
            header = read_header(batch.bytes_with("none"))
            sent.append((header.base_sequence, header.record_count))
            bench.answer(batch, offset=header.base_sequence)
    assert sent == [(1, 1), (2, 2), (4, 3), (7, 1)]
    assert [receipt.metadata.offset for receipt in receipts if receipt.metadata] == [1, 2, 3, 4, 5, 6, 7]
    assert bench.accumulator.statistics.split_batches == 1


def test_too_large_single_record_is_refused() -> None:
    bench = Bench()
    receipt = bench.send()
    bench.answer(bench.one(), ErrorCode.MESSAGE_TOO_LARGE)
    assert isinstance(receipt.error, KafkaError)
    assert receipt.error.code == ErrorCode.MESSAGE_TOO_LARGE
    assert bench.accumulator.outstanding == 0


def test_late_batch_with_the_first_producer_id_of_a_cluster_does_not_wait_for_one() -> None:
    bench = Bench()
    numbering = bench.accumulator.numbering
    numbering.producer_id = 0
    bench.send()
    batch = bench.one()
    numbering.wants_producer_id = True
    assert bench.accumulator.delivery.why_late(batch.queue, batch, 1.0) == "its leader has not responded yet"
