"""The producer's switch to a newer generation: a barrier, per class of keys (rule R8; K501 to K510).

When a topic is resized, some partitions are split, merged or sealed; only these are *affected*. A key's records must
reach its new partition after everything of it that the old one accepted, however late the producer learns of the
resize and in whatever order leaders take it up. So:

    (a) a waiting batch of an older class generation is never transmitted: its records are withdrawn
    (b) an unresolved one is retried where it is, with its generation, until the leader acknowledges it or refuses it
        for good; a lost response is no reason to send its records elsewhere
    (c) withdrawn and refused records are partitioned again, in the order of their append, ahead of younger ones
    (d) a partition is *closed*, nothing new is transmitted to it, while an unresolved batch of an older class shares
        keys with it

Another resize in the meantime starts over from (a): nothing is carried along but the order of the records.

A refusal (INVALID_PARTITION_METADATA) carries the partition's generation. Above the batch's generation, the producer is
behind: the refusal is final, because a leader's generation never falls and duplicates are recognised first (R5). At or
below it, the leader is behind, or tells nothing: the batch stays where it is (K508). A partition that was removed and
created again since does not know what the earlier one stored: a batch that may be in there has an unknown outcome for
good, and fails (K504). Metadata of an older generation is ignored (K507). Records whose partition the application chose
are never moved; a sealed one fails them.

A topic that was deleted and made again has another id, and any partitions. What the first one's leaders refused belongs
where the next one has its keys, and meanwhile nothing younger is transmitted. A batch of unknown outcome is retried
where it was, with its own id, until a leader says that it does not know this topic (Kafka's Produce v13 has ids, too).

Pure: works on `queues`, decides nothing about time, nodes or acknowledgements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from anabranch.clients.producer.producer_record import Record, size_of
from anabranch.clients.producer.queues import NO_GENERATION, Batch, PartitionQueue, TopicQueues
from anabranch.clients.producer.routes import UNKEYED, chosen_partition
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.linear_hashing import KeyClass

REFUSED_BEFORE_APPEND: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_PARTITION_METADATA,
    }
)
"""Retriable errors that are certain: the batch is not in the log."""
Choose = Callable[[Sequence[int]], int]
"""Picks one of the live partitions for a record without a key."""


def adopt(topic: TopicQueues, topic_id: bytes, lineage: Lineage | None, live: Sequence[int]) -> bool:
    """Adopt a topic's newer metadata; return whether the keys of any partition changed.

    Affected queues lose their waiting batches here, all at once: between two adoptions no batch of an old class can be
    transmitted for the first time (K503). `settle` must follow.
    """
    if not _has_changed(topic, topic_id, lineage, live):
        return False
    reborn = topic.topic_id not in (b"", topic_id)
    topic.topic_id = topic_id
    topic.hash_over(lineage, live)
    affected = [queue for queue in topic.queues.values() if topic.locate(queue) or reborn]
    for queue in affected:
        queue.established = False
        if reborn:
            queue.fence = queue.batch_generation
            move_on(queue)
        if lineage is not None or reborn:
            withdraw(queue)
    return bool(affected)


def _has_changed(topic: TopicQueues, topic_id: bytes, lineage: Lineage | None, live: Sequence[int]) -> bool:
    if topic.topic_id != topic_id or (topic.lineage is None) != (lineage is None):
        return True
    if lineage is None:
        return topic.live != tuple(live)
    return is_newer(lineage.generation, topic.generation)


def is_newer(generation: int, known: int) -> bool:
    """Whether a generation is newer: generations only rise, so stale metadata must not restore old hashing (K507)."""
    return generation > known


def withdraw(queue: PartitionQueue) -> None:
    """Step (a): take waiting batches apart. Unresolved ones stay: they may be in the log already (K504)."""
    returned = queue.topic.returned
    for batch in queue.waiting:
        returned.extend((record, batch.created_at) for record in batch.records)
    queue.waiting.clear()


def move_on(queue: PartitionQueue) -> None:
    """Take back what the leaders of a deleted topic refused: its keys may have other partitions in the next one."""
    for batch in list(queue.unresolved):
        if batch.of_deleted_topic and not batch.on_wire and not batch.doubtful:
            refuse(batch, NO_GENERATION)


def is_left_behind(batch: Batch, code: ErrorCode) -> bool:
    """Whether a batch of a deleted topic with this response belongs to the partitions of the next topic.

    A batch of unknown outcome does once a leader does not know the topic of its id: metadata alone may be old.
    """
    if batch.doubtful:
        return batch.names_topic and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code in REFUSED_BEFORE_APPEND


def may_be_stored(batch: Batch) -> bool:
    """Whether the present topic may have the batch, because a response was lost."""
    return batch.doubtful and not (batch.of_deleted_topic and batch.names_topic)


def refusal_is_final(batch: Batch, generation: int) -> bool:
    """Whether a leader that names this generation can never accept the batch."""
    return generation > batch.batch_generation


def outcome_is_lost(batch: Batch, first_generation: int) -> bool:
    """Whether only a removed partition knew if it stored the batch: the present one began later (K504)."""
    return batch.doubtful and first_generation > batch.batch_generation


def refuse(batch: Batch, generation: int) -> None:
    """Apply a refusal (step (c), first half): nothing older than the leader's generation may follow."""
    queue = batch.queue
    queue.unresolved.remove(batch)
    if not batch.of_deleted_topic:  # otherwise the leader is new to the producer, and accepts any first number
        queue.rewind(batch)
        if generation > batch.batch_generation:
            queue.fence = max(queue.fence, generation)
    batch.done = True
    queue.topic.returned.extend((record, batch.created_at) for record in batch.records)


def stale_classes(topic: TopicQueues) -> set[KeyClass]:
    """The classes of unresolved batches that were partitioned before their partition's keys changed."""
    return {
        batch.key_class
        for queue in topic.queues.values()
        for batch in queue.unresolved
        if batch.batch_generation != queue.batch_generation or not queue.live
    }


def closed_partitions(topic: TopicQueues) -> frozenset[int]:
    """Step (d): the live partitions that share keys with a stale unresolved batch."""
    if topic.lineage is None:
        return frozenset()
    if any(batch.of_deleted_topic for queue in topic.queues.values() for batch in queue.unresolved):
        return frozenset(topic.live)
    stale = stale_classes(topic)
    if not stale:
        return frozenset()
    return frozenset(index for index in topic.live if any(topic.queue(index).key_class.overlaps(one) for one in stale))


def settle(topic: TopicQueues, choose: Choose, batch_bytes: int, *, force: bool = False) -> list[Record]:
    """Determine the closed partitions, and partition returned records whose new partition is open (step c).

    To be called, with `force`, after every adoption, and whenever a batch of a switching topic is resolved. Returns the
    records without a partition: the application chose one that was merged away.
    """
    before, topic.closed = topic.closed, closed_partitions(topic)
    if not topic.returned or (topic.closed and topic.closed == before and not force):
        return []
    returned, topic.returned = topic.returned, []
    homeless: list[Record] = []
    targets: defaultdict[int, list[tuple[Record, float]]] = defaultdict(list)
    for entry in returned:
        target = _target(topic, entry[0].route, choose)
        if target is None:
            homeless.append(entry[0])
        elif target in topic.closed or topic.queue(target).fenced:
            topic.returned.append(entry)
        else:
            targets[target].append(entry)
    for target, entries in targets.items():
        _place(topic.queue(target), entries, batch_bytes)
    return homeless


def _target(topic: TopicQueues, route: int, choose: Choose) -> int | None:
    if route >= 0:
        return topic.address(route)
    if route == UNKEYED:
        return choose(topic.live)
    partition = chosen_partition(route)
    return partition if partition in topic.live else None


def _place(queue: PartitionQueue, entries: Iterable[tuple[Record, float]], batch_bytes: int) -> None:
    """Merge records into a queue's waiting ones by age. The queue has been closed: nothing younger has left it."""
    for batch in queue.waiting:
        entries = [*entries, *((record, batch.created_at) for record in batch.records)]
    queue.waiting.clear()
    for record, created_at in sorted(entries, key=_age):
        queue.add(record, size_of(record.key, record.value, record.headers), batch_bytes, created_at)
        youngest = queue.waiting[-1]
        youngest.created_at = min(youngest.created_at, created_at)


def _age(entry: tuple[Record, float]) -> int:
    return entry[0].order
