"""Where a record wants to go, as one number: to the partition of its key, to one that was chosen, or to any.

    >= 0    the hash of its key; which partition that is follows from the topic's lineage, and changes with it
    -1      any live partition
    < -1    a partition that the application chose: the record is never moved

A record is refused before it is accepted when nothing can take it where it wants to go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.hashing import murmur2

if TYPE_CHECKING:
    from anabranch.clients.producer.queues import TopicQueues

UNKEYED: Final = -1


def route_of(key: bytes | None, partition: int | None) -> int:
    """The route of a record as it is handed in."""
    if partition is not None:
        return explicit_route(partition)
    return UNKEYED if key is None else murmur2(key)


def explicit_route(partition: int) -> int:
    """The route to a partition that the application chose."""
    return -2 - partition


def chosen_partition(route: int) -> int:
    """The partition behind an explicit route."""
    return -2 - route


def check_accepted(topic: TopicQueues, route: int) -> None:
    """Refuse a record, before it waits for room in the buffer, that would be refused afterwards."""
    if route == UNKEYED:
        if not topic.keyless:
            raise starved(topic)
        return
    index = topic.address(route) if route >= 0 else chosen_partition(route)
    if index in topic.refused:
        raise starved(topic, index)


def starved(topic: TopicQueues, index: int | None = None) -> KafkaError:
    """Why a record is not accepted for a partition without enough replicas; None: every one is without."""
    where = "every partition" if index is None else f"partition {index}"
    text = f"{topic.name}: fewer in-sync replicas than min.insync.replicas in {where}; the record was not accepted"
    return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, text)


def not_live(topic: TopicQueues, partition: int) -> KafkaError:
    """Why a record that wants to go to a certain partition has no place."""
    live = f"0 to {topic.live[-1]}" if topic.live else "none"
    return KafkaError(
        ErrorCode.INVALID_PARTITIONS,
        f"{topic.name} takes no records in partition {partition}: it has been merged away or never was (live: {live})",
    )
