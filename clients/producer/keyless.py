"""Moves waiting records without a key from partitions that take none now to partitions that are ready.

Only what is known not to be in a log: records that were never transmitted, and batches that their leader refused
without appending them, the youngest first, because the sequence numbers of a partition may not get holes. A batch that
holds a record with a key stays whole once it has been transmitted: that one has no other place. Their order is
not promised, but they are placed by their age all the same.

Pure. KIP-480 leaves such batches where they are, to the delivery timeout; ours is the reading of "route to ready
partitions" that does not depend on when metadata came.
"""

from __future__ import annotations

from anabranch.clients.producer.queues import Batch, PartitionQueue, TopicQueues
from anabranch.clients.producer.routes import UNKEYED


def withdraw_keyless(topic: TopicQueues) -> bool:
    """Move records that can go to a ready partition instead into `topic.returned`. Returns whether there were any."""
    if not topic.ready:
        return False
    before = len(topic.returned)
    for queue in topic.queues.values():
        if not queue.idle and queue.index not in topic.ready:
            _withdraw_unresolved(queue)
            _withdraw_waiting(queue)
    return len(topic.returned) > before


def _withdraw_unresolved(queue: PartitionQueue) -> None:
    while queue.unresolved and _movable(queue.unresolved[-1]):
        batch = queue.unresolved.pop()
        queue.rewind(batch)
        batch.done = True
        queue.topic.returned.extend((record, batch.created_at) for record in batch.records)


def _movable(batch: Batch) -> bool:
    return not batch.on_wire and not batch.doubtful and all(record.route == UNKEYED for record in batch.records)


def _withdraw_waiting(queue: PartitionQueue) -> None:
    waiting = list(queue.waiting)
    queue.waiting.clear()
    for batch in waiting:
        queue.topic.returned.extend((one, batch.created_at) for one in batch.records if one.route == UNKEYED)
        batch.keep([one for one in batch.records if one.route != UNKEYED])
        if batch.records:
            queue.waiting.append(batch)
