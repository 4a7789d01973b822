"""The text of why a record was not stored in time."""

from __future__ import annotations

from anabranch.clients.producer.delay_reasons import delay_reason, held_back_reason
from anabranch.clients.producer.queues import Batch, PartitionQueue, TopicQueues
from anabranch.protocol.errors import ErrorCode


def queued() -> tuple[PartitionQueue, Batch]:
    queue = PartitionQueue(TopicQueues("t"), 3)
    return queue, Batch(queue, 0.0)


def late(queue: PartitionQueue, batch: Batch, obstacle: str = "", identified: bool = True) -> str:
    return delay_reason(queue, batch, 12.5, obstacle=obstacle, identified=identified)


def test_unsent_batch_names_missing_leader_or_busy_connection() -> None:
    queue, batch = queued()
    assert late(queue, batch, "no leader is known") == "no leader is known"
    queue.blocked_since = 10.0
    assert late(queue, batch, "no leader is known") == "no leader is known (for 2.5 s)"
    assert late(queue, batch) == "its leader has too many requests in flight (for 2.5 s)"


def test_sent_batch_names_missing_response() -> None:
    queue, batch = queued()
    batch.attempts = 1
    assert late(queue, batch) == "no response arrived"
    batch.on_wire = True
    batch.last_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert late(queue, batch, identified=False) == (
        "no broker has allocated a producer id, its leader has not responded yet, "
        "the last response was NOT_ENOUGH_REPLICAS"
    )


def test_queued_batch_names_older_records() -> None:
    queue, batch = queued()
    assert late(queue, batch) == "it is queued"
    queue.unresolved.append(Batch(queue, 0.0))
    assert late(queue, batch) == "older records of its partition are not stored yet"


def test_records_held_back_by_resize_name_resize() -> None:
    queue, _ = queued()
    topic = queue.topic
    topic.queues[3] = queue
    assert held_back_reason(topic) == "it is queued"
    queue.fence = queue.batch_generation + 1
    assert queue.fenced
    assert held_back_reason(topic) == "partition 3 was resized, and the metadata is not updated yet"
