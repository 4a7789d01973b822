"""Stalled records, each reported once."""

from __future__ import annotations

from anabranch.clients.producer.queues import Batch, PartitionQueue, TopicQueues
from anabranch.clients.producer.stall_watch import StallWatch


def queue_of(index: int, *created_at: float) -> PartitionQueue:
    queue = PartitionQueue(TopicQueues("t"), index)
    queue.unresolved.extend(Batch(queue, one) for one in created_at)
    return queue


def why(_queue: PartitionQueue, _batch: Batch, _now: float) -> str:
    return "the disk is full"


def test_stalled_head_is_reported_once() -> None:
    watch, queue = StallWatch(), queue_of(3, 0.0, 1.0)
    assert watch.check([queue], 2.0, why) is None
    assert watch.check([queue], 4.0, why) == "t-3: records wait for 4 s to be stored: the disk is full"
    assert watch.check([queue], 6.0, why) is None
    queue.unresolved.popleft()
    assert watch.check([queue], 8.0, why) is None, "it went on"
    assert watch.check([queue], 10.0, why) == "t-3: records wait for 9 s to be stored: the disk is full"


def test_queue_with_progress_is_not_reported() -> None:
    watch, queue = StallWatch(), queue_of(0, *map(float, range(5)))
    for now in range(5):
        assert watch.check([queue], float(now), why) is None
        queue.unresolved.popleft()
    assert watch.check([queue], 5.0, why) is None


def test_oldest_stalled_partition_is_reported_with_count_of_others() -> None:
    watch, queues = StallWatch(), [queue_of(1, 5.0), queue_of(2, 3.0), queue_of(4, 4.0)]
    watch.check(queues, 6.0, why)
    expected = "t-2: records wait for 5 s to be stored: the disk is full, and 2 other partitions wait"
    assert watch.check(queues, 8.0, why) == expected
    watch, queues = StallWatch(), queues[1:]
    watch.check(queues, 6.0, why)
    assert watch.check(queues, 8.0, why) == expected.replace("2 other partitions wait", "1 other partition waits")


def test_lingering_or_queued_batch_is_no_stall() -> None:
    watch, queue = StallWatch(), queue_of(1)
    queue.waiting.append(Batch(queue, 0.0))
    assert watch.check([queue], 2.0, why) is watch.check([queue], 4.0, why) is None
    queue.blocked_since = 4.0
    assert watch.check([queue], 6.0, why) is None
    assert watch.check([queue], 8.0, why) == "t-1: records wait for 8 s to be stored: the disk is full"
