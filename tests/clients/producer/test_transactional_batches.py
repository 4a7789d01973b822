"""Batches of a transaction go only to its partitions, and none outlives it.

Method: the real accumulator with the real state machine of transactions and a model of the coordinators; the test says
what leaders answer.
"""

from __future__ import annotations

import pytest

from anabranch.clients.producer import switch
from anabranch.clients.producer.queues import Batch
from anabranch.clients.producer.transaction_errors import AbortableError, Step, TransactionAborted
from anabranch.clients.producer.transaction_manager import State, TransactionManager
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import read_header
from tests.clients.producer.bench import AccumulatorBench
from tests.clients.producer.coordinator import Coordinator, ask
from tests.clients.producer.world import Receipt


class Bench(AccumulatorBench):
    """A transactional producer of one ordered topic."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(transactional_id="id", delivery_timeout_ms=10000)
        found = self.accumulator.numbering.transactions
        assert found is not None
        self.transactions: TransactionManager = found
        self.coordinator = Coordinator()
        self.adopt((0, partitions))
        self.transactions.initialize()
        self.ask()
        self.transactions.begin()

    def send(self, key_hash: int = 0) -> Receipt:
        return self.append(key_hash, b"k", b"v")

    def sent(self) -> list[Batch]:
        """Return the batches sent once the coordinator has the partitions."""
        self.drain()
        self.ask()
        return self.batches()

    def ask(self) -> list[Step]:
        return ask(self.transactions, self.coordinator, settled=not self.accumulator.outstanding)

    def abort(self) -> list[Step]:
        self.transactions.abort()
        self.accumulator.delivery.drop_doomed()
        return self.ask()


def test_nothing_is_sent_before_its_partition_is_added_to_transaction() -> None:
    bench = Bench(partitions=2)
    bench.send(0)
    bench.send(1)
    assert bench.batches() == []
    assert bench.transactions.enlisting
    assert bench.ask() == [Step.ADD_PARTITIONS]
    batches = bench.batches()
    assert [batch.queue.index for batch in batches] == [0, 1]
    header = read_header(batches[0].bytes_with("none", transactional=True))
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 0)


def test_sequences_continue_in_next_transaction() -> None:
    bench = Bench()
    for expected in range(3):
        bench.send()
        (batch,) = bench.sent()
        assert (batch.producer_epoch, batch.base_sequence) == (0, expected)
        bench.answer(batch)
        bench.transactions.commit()
        assert bench.ask() == [Step.END]
        bench.transactions.begin()


def test_abort_drops_unsent_records_and_waits_for_sent_ones() -> None:
    bench = Bench()
    first = bench.send()
    (batch,) = bench.sent()
    second = bench.send()
    assert bench.abort() == []
    assert isinstance(second.error, TransactionAborted)
    assert not first.done()
    bench.answer(batch)
    assert first.metadata is not None
    assert bench.ask() == [Step.END]
    assert bench.coordinator.ended == [False]
    assert bench.transactions.identity == (7, 0)


@pytest.mark.parametrize("place", ["waiting", "unresolved", "returned"])
def test_records_of_an_ending_sender_are_not_left_out_of_a_commit(place: str) -> None:
    """A bug in one batch, say: the task of the transactions still runs, and has nothing to wait for any more."""
    bench = Bench()
    receipt = bench.send()
    if place == "unresolved":
        bench.sent()
    elif place == "returned":
        topic = bench.accumulator.topic("t")
        topic.queue(0).fence = 1
        switch.withdraw(topic.queue(0))
    bench.transactions.commit()
    bench.accumulator.delivery.abandon(ValueError("a bug"))
    assert isinstance(receipt.error, ValueError)
    assert bench.ask() == []
    assert isinstance(bench.transactions.failure, AbortableError)
    assert "a bug" in str(bench.transactions.failure)
    bench.abort()
    assert True not in bench.coordinator.ended


def test_batch_lost_during_abort_is_not_sent_again() -> None:
    bench = Bench()
    receipt = bench.send()
    (batch,) = bench.sent()
    bench.abort()
    bench.accumulator.delivery.on_lost(batch, bench.now)
    assert isinstance(receipt.error, TransactionAborted)
    assert bench.accumulator.outstanding == 0
    assert bench.ask() == [Step.END, Step.INITIALIZE]
    bench.transactions.begin()
    bench.send()
    (again,) = bench.sent()
    assert (again.producer_epoch, again.base_sequence) == (1, 0), "a new epoch, because the old one has a hole"


@pytest.mark.parametrize(
    "code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE]
)
def test_refused_batch_aborts_whole_transaction(code: ErrorCode) -> None:
    bench = Bench(partitions=2)
    refused, other = bench.send(0), bench.send(1)
    batch, beside = bench.sent()
    waiting = bench.send(0)
    bench.answer(batch, code)
    assert isinstance(refused.error, KafkaError)
    assert refused.error.code is code
    assert isinstance(waiting.error, AbortableError)
    assert bench.transactions.state is State.ABORTABLE_ERROR
    assert not other.done(), "it is on the wire"
    bench.answer(beside)
    with pytest.raises(AbortableError, match=code.name):
        bench.transactions.commit()
    assert bench.abort() == [Step.END, Step.INITIALIZE]


def test_sequence_error_behind_older_batch_is_retried() -> None:
    bench = Bench()
    bench.send()
    (first,) = bench.sent()
    bench.answer(first)
    bench.send()
    (second,) = bench.batches()
    bench.send()
    (third,) = bench.batches()
    bench.accumulator.delivery.on_lost(second, bench.now)
    bench.answer(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert bench.transactions.state is State.IN_TRANSACTION
    bench.now = 1.0
    assert bench.batches() == [second]


def test_expired_record_dooms_transaction() -> None:
    bench = Bench()
    receipt = bench.send()
    bench.now = 11.0
    assert bench.batches() == []
    assert isinstance(receipt.error, KafkaError)
    assert bench.transactions.state is State.ABORTABLE_ERROR


def test_resize_moves_records_to_partitions_that_are_added_to_transaction() -> None:
    """K512: refused records are partitioned again; the child is added before records are sent to it."""
    bench = Bench()
    bench.send(0)
    (first,) = bench.sent()
    bench.answer(first)
    moved, stays = bench.send(1), bench.send(0)
    (batch,) = bench.batches()
    bench.answer(batch, ErrorCode.INVALID_PARTITION_METADATA, generation=1)
    bench.adopt((0, 1), (1, 2))
    assert [one.queue.index for one in bench.batches()] == [0], "the child is not part of the transaction yet"
    assert bench.ask() == [Step.ADD_PARTITIONS]
    (child,) = bench.batches()
    assert (child.queue.index, child.batch_generation, child.base_sequence) == (1, 1, 0)
    bench.answer(child)
    assert moved.metadata is not None
    assert not stays.done()
    assert len(bench.coordinator.partitions) == 2
