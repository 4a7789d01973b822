"""Encodes a record's destination as one number: its key's partition, a chosen partition, or any.

    >= 0    the hash of its key; which partition that is follows from the topic's lineage, and changes with it
    -1      any live partition
    < -1    a partition that the application chose: the record is never moved

A record is refused before it is accepted if its destination cannot take it.
"""

from __future__ import annotations

from operator import index as as_index
from typing import TYPE_CHECKING, Final

from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.hashing import murmur2

if TYPE_CHECKING:
    from anabranch.clients.producer.queues import TopicQueues

UNKEYED: Final = -1


def route_of(key: bytes | None, partition: int | None) -> int:
    """Return the route of a new record. Raises ValueError for a negative partition, whose route would be another."""
    if partition is not None:
        if as_index(partition) < 0:
            raise ValueError(f"a partition is 0 or more, not {partition}; None lets the partitioner choose")
        return explicit_route(as_index(partition))
    return UNKEYED if key is None else murmur2(key)


def explicit_route(partition: int) -> int:
    """Return the route to a partition that the application chose."""
    return -2 - partition


def chosen_partition(route: int) -> int:
    """Return the partition of an explicit route."""
    return -2 - route


def check_accepted(topic: TopicQueues, route: int) -> None:
    """Refuse a record before it waits for buffer space, if it would be refused afterwards."""
    if route == UNKEYED:
        if not topic.keyless:
            raise too_few_replicas(topic)
        return
    index = topic.address(route) if route >= 0 else chosen_partition(route)
    if index in topic.refused:
        raise too_few_replicas(topic, index)


def too_few_replicas(topic: TopicQueues, index: int | None = None) -> KafkaError:
    """Return the error for a partition without enough in-sync replicas; None: all are without."""
    where = "every partition" if index is None else f"partition {index}"
    text = f"{topic.name}: fewer in-sync replicas than min.insync.replicas in {where}; the record was not accepted"
    return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, text)


def not_live(topic: TopicQueues, partition: int) -> KafkaError:
    """Return the error for a record whose chosen partition is not live."""
    live = f"0 to {topic.live[-1]}" if topic.live else "none"
    return KafkaError(
        ErrorCode.INVALID_PARTITIONS,
        f"{topic.name} has no writable partition {partition}: it is retiring, removed, or never existed (live: {live})",
    )
