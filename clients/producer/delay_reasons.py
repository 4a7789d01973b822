"""Describes why a record was not stored in time: what its delivery waited for.

Pure. Facts about connections and metadata come as a text (`Accumulator.obstacle`); the queue notes since when they
block it (`blocked_since`).
"""

from __future__ import annotations

from anabranch.clients.producer.queues import Batch, PartitionQueue, TopicQueues


def delay_reason(queue: PartitionQueue, batch: Batch, now: float, *, obstacle: str, identified: bool) -> str:
    """Describe what a batch waited for. `obstacle`: why its leader cannot be reached; empty if it can."""
    reasons: list[str] = []
    if queue.blocked_since is not None:
        blocked = obstacle or "its leader has too many requests in flight"
        reasons.append(f"{blocked} (for {now - queue.blocked_since:.1f} s)")
    elif obstacle:
        reasons.append(obstacle)
    if not identified:
        reasons.append("no broker has allocated a producer id")
    if batch.on_wire:
        reasons.append("its leader has not responded yet")
    if batch.last_error is not None:
        reasons.append(f"the last response was {batch.last_error.name}")
    if batch.attempts == 0 and queue.unresolved:
        reasons.append("older records of its partition are not stored yet")
    if batch.attempts == 0 and not reasons:
        reasons.append(held_back_reason(queue.topic))
    return ", ".join(reasons) or "no response arrived"


def held_back_reason(topic: TopicQueues) -> str:
    """Describe what records without an available partition wait for: a resize is in progress."""
    fenced = sorted(queue.index for queue in topic.queues.values() if queue.fenced)
    if fenced:
        return f"partition {fenced[0]} was resized, and the metadata is not updated yet"
    if topic.closed:
        return "older records of its keys, from before a resize, are not stored yet"
    return "it is queued"
