"""Sequence numbers, classes and sizes at their limits."""

from __future__ import annotations

import pytest

from anabranch.clients.producer.producer_record import Record
from anabranch.clients.producer.queues import Batch, PartitionQueue, TopicQueues
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.records.batch import SEQUENCES
from tests.clients.producer.world import Receipt


def queue_of(count: int = 1, index: int = 0) -> PartitionQueue:
    topic = TopicQueues("t")
    topic.hash_over(Lineage(1, [(0, count)]), range(count))
    queue = topic.queue(index)
    queue.begin_again(7, queue.producer_epoch + (queue.producer_id == 7))
    return queue


def batch_of(queue: PartitionQueue, records: int) -> Batch:
    batch = Batch(queue, 0.0)
    batch.records = [Record(n, 0, b"k", b"v", (), 0, Receipt()) for n in range(records)]
    return batch


def test_sequence_numbers_are_consecutive_and_wrap() -> None:
    queue = queue_of()
    queue.next_sequence = SEQUENCES - 2
    first, second = batch_of(queue, 3), batch_of(queue, 1)
    queue.number(first)
    queue.number(second)
    assert (first.base_sequence, second.base_sequence, queue.next_sequence) == (SEQUENCES - 2, 1, 2)


@pytest.mark.parametrize("start", [0, 100, SEQUENCES - 2, SEQUENCES - 1])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_rewind_restores_first_refused_sequence_in_any_order(start: int, order: tuple[int, ...]) -> None:
    queue = queue_of()
    queue.next_sequence = start
    batches = [batch_of(queue, 2) for _ in range(3)]
    for batch in batches:
        queue.number(batch)
    for place in order:
        queue.rewind(batches[place])
    assert queue.next_sequence == start


def test_rewind_ignores_batches_of_older_epoch() -> None:
    queue = queue_of()
    old = batch_of(queue, 5)
    queue.number(old)
    queue.begin_again(7, queue.producer_epoch + (queue.producer_id == 7))
    young = batch_of(queue, 9)
    queue.number(young)
    queue.rewind(old)
    assert (queue.producer_epoch, queue.next_sequence) == (1, 9)


def test_epoch_bump_renumbers_unresolved_batches() -> None:
    queue = queue_of()
    batches = [batch_of(queue, 2), batch_of(queue, 3)]
    for batch in batches:
        queue.number(batch)
        queue.unresolved.append(batch)
        batch.bytes_with("none")
    queue.established = queue.restart = queue.give_up = True
    queue.begin_again(7, queue.producer_epoch + (queue.producer_id == 7))
    assert [(batch.producer_epoch, batch.base_sequence, batch.built) for batch in batches] == [
        (1, 0, None),
        (1, 2, None),
    ]
    assert (queue.next_sequence, queue.established, queue.restart, queue.give_up) == (5, False, False, False)
    queue.begin_again(8, 0)
    assert (queue.producer_id, queue.producer_epoch) == (8, 0)


def test_repr_of_queue_and_batch_is_one_line() -> None:
    queue = queue_of(4, 2)
    batch = batch_of(queue, 3)
    queue.waiting.append(batch)
    assert repr(queue) == "<t-2@0: 1 waiting, 0 unresolved, next sequence 0 of epoch 0>"
    assert repr(batch) == "<Batch t-2@0 3 records from sequence -1, waiting>"
