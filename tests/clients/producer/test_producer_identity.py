"""When a batch may have a sequence number, and of which epoch."""

from __future__ import annotations

import pytest

from anabranch.clients.config import ProducerConfig
from anabranch.clients.producer.metrics import Statistics
from anabranch.clients.producer.producer_identity import Numbering
from anabranch.clients.producer.queues import PRODUCER_EPOCH_MAX, Batch, PartitionQueue, TopicQueues


def numbering(**settings: object) -> tuple[Numbering, PartitionQueue, Statistics]:
    statistics = Statistics()
    config = ProducerConfig(**settings)  # type: ignore[arg-type]
    return Numbering(config, statistics), PartitionQueue(TopicQueues("t"), 0), statistics


def test_without_idempotence_batches_have_no_producer_id() -> None:
    numbers, queue, _ = numbering(enable_idempotence=False)
    assert not numbers.wants_producer_id
    assert numbers.ready(queue) and queue.producer_id == -1


def test_batches_wait_for_producer_id() -> None:
    numbers, queue, statistics = numbering()
    assert numbers.wants_producer_id and not numbers.ready(queue)
    numbers.producer_id, numbers.wants_producer_id = 77, False
    assert numbers.ready(queue)
    assert (queue.producer_id, queue.producer_epoch, statistics.epoch_bumps) == (77, 0, 0)


def test_queue_with_sequence_gap_bumps_epoch_once_nothing_is_in_flight() -> None:
    numbers, queue, statistics = numbering()
    numbers.producer_id = 77
    assert numbers.ready(queue)
    queue.give_up = True
    batch = Batch(queue, 0.0)
    batch.on_wire = True
    queue.unresolved.append(batch)
    assert numbers.ready(queue), "those that were numbered are sent again"
    queue.restart = True
    assert not numbers.ready(queue), "one of them is on the wire"
    queue.unresolved.clear()
    assert numbers.ready(queue)
    assert (queue.producer_id, queue.producer_epoch, statistics.epoch_bumps) == (77, 1, 1)


def test_exhausted_producer_id_is_replaced() -> None:
    numbers, queue, _ = numbering()
    numbers.producer_id, numbers.wants_producer_id = 77, False
    numbers.ready(queue)
    queue.begin_again(77, PRODUCER_EPOCH_MAX)
    queue.restart = True
    assert not numbers.ready(queue) and numbers.wants_producer_id
    numbers.producer_id = 78
    assert numbers.ready(queue) and (queue.producer_id, queue.producer_epoch) == (78, 0)


def test_transactional_batches_wait_for_the_identity_of_the_transactional_id() -> None:
    numbers, queue, _ = numbering(transactional_id="t")
    assert numbers.transactions is not None and numbers.transactions.identity is None
    assert not numbers.ready(queue) and queue.producer_id == -1


@pytest.mark.parametrize(("transmitted", "used_up"), [(6, False), (7, True), (9, True)])
def test_oldest_unresolved_batch_stays_within_batches_that_leader_remembers(transmitted: int, used_up: bool) -> None:
    numbers, queue, _ = numbering()
    oldest = Batch(queue, 0.0)
    oldest.ordinal = 2
    queue.unresolved.append(oldest)
    queue.transmitted = transmitted
    again = Batch(queue, 0.0)
    again.ordinal = transmitted
    assert numbers.window_is_used_up(queue) is numbers.must_wait(queue, again) is used_up
