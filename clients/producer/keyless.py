"""Moves waiting records without a key from unavailable partitions to ready ones.

Only records that are certainly not in a log move: records never transmitted, and batches that their leader refused
without appending them, the youngest first, because a partition's sequence numbers may have no gaps. A transmitted batch
with a keyed record stays whole, because that record has no other partition. The order of keyless records is not
guaranteed, but they are placed by age all the same.

Pure. KIP-480 leaves such batches in place until the delivery timeout; here "route to ready partitions" does not depend
on when metadata arrived.
"""

from __future__ import annotations

from anabranch.clients.producer.queues import Batch, PartitionQueue, TopicQueues
from anabranch.clients.producer.routes import UNKEYED


def withdraw_keyless(topic: TopicQueues) -> bool:
    """Withdraw records that a ready partition can take into `topic.returned`. Returns whether there were any."""
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
