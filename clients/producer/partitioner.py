"""Chooses the partition of a record sent without one; declares the interface of custom partitioners.

Keyed records follow their hash (D10): linear hashing over the live partitions of an ordered topic, so that every resize
moves as few keys as it can, and Kafka's `hash % partitions` where the topic or the user asks for today's behaviour. At
`base * 2**k` partitions both agree. Records without a key stick to one partition per batch (KIP-480): to one that is
*ready*, which means that it has a leader and, with acks=all, at least `min.insync.replicas` in sync; while none is
ready to one that has a leader, and while none has to any.

`Producer(partitioner=...)` replaces this by an object like `Partitioner`, or a function like its method.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.protocol.hashing import murmur2

if TYPE_CHECKING:
    from anabranch.clients.metadata import ClusterMetadata
    from anabranch.clients.producer.queues import TopicQueues


class ClusterView:
    """The producer's current metadata, for partitioners. Partitions are given by their numbers."""

    def __init__(self, topics: Mapping[str, TopicQueues], metadata: Callable[[], ClusterMetadata]) -> None:
        self._topics = topics
        self._metadata = metadata

    @property
    def metadata(self) -> ClusterMetadata:
        """The whole metadata: nodes and racks; leaders, replicas and settings of each topic."""
        return self._metadata()

    def partitions_for_topic(self, topic: str) -> tuple[int, ...]:
        """Return the partitions that records may be sent to, rising, without those that a resize has merged away."""
        known = self._topics.get(topic)
        return () if known is None else known.live

    def available_partitions_for_topic(self, topic: str) -> tuple[int, ...]:
        """Return the partitions that records may be sent to and that have a leader."""
        known = self._topics.get(topic)
        return () if known is None else known.available

    def ready_partitions_for_topic(self, topic: str) -> tuple[int, ...]:
        """Return the partitions whose leader accepts records: with acks=all, min.insync.replicas are in sync."""
        known = self._topics.get(topic)
        return () if known is None else known.ready

    def partition_for_key(self, topic: str, key_bytes: bytes) -> int:
        """Return the partition of a key. On an ordered topic the producer accepts no other choice.

        Raises KeyError for a topic that the producer does not use.
        """
        return self._topics[topic].address(murmur2(key_bytes))


class Partitioner(Protocol):
    """An application's own partitioner. It is called in the producer's loop, so it must not block.

    It may have a method `on_new_batch(topic, cluster, prev_partition)`, like `StickyPartitioner`.
    """

    def partition(
        self,
        topic: str,
        key: Any,
        key_bytes: bytes | None,
        value: Any,
        value_bytes: bytes | None,
        require_min_in_sync_acks: bool,
        cluster: ClusterView,
        /,
    ) -> int:
        """Choose the partition of a record. An exception that it raises comes out of `send`.

        Args:
            topic: The topic's name.
            key: The same as `key_bytes`: this producer takes bytes.
            key_bytes: The record's key; None if it has none.
            value: The same as `value_bytes`.
            value_bytes: The record's value.
            require_min_in_sync_acks: Whether the producer has acks="all", so that a partition that is available may
                still refuse the record.
            cluster: What the producer knows of the cluster.

        Returns:
            One of the partitions that records may be sent to. On an ordered topic a record with a key must go to
            `cluster.partition_for_key(topic, key_bytes)`; any other answer is a ValueError out of `send`.
        """


class StickyPartitioner(Partitioner, Protocol):
    """A partitioner that is notified at the end of a batch, so that it can keep one partition until then."""

    def on_new_batch(self, topic: str, cluster: ClusterView, prev_partition: int, /) -> None:
        """Change the choice: a record would begin a new batch in `prev_partition`.

        The producer asks again for the record's partition after this call.
        """


PartitionerFunction = Callable[[str, Any, bytes | None, Any, bytes | None, bool, ClusterView], int]
"""A function in place of a `Partitioner`: its method `partition`."""


def modulo(key_hash: int, partitions: int) -> int:
    """Kafka's own choice for a keyed record."""
    return key_hash % partitions


class Sticky:
    """The partition of records without a key, until its batch is full."""

    __slots__ = ("_current", "_rng")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._current = -1

    def current(self, live: Sequence[int]) -> int:
        """Return the current partition; choose another if it is no longer live."""
        if self._current not in live:
            self._current = live[self._rng.randrange(len(live))]
        return self._current

    def move_on(self, live: Sequence[int]) -> None:
        """Choose another partition for the next batch, to spread the load."""
        if len(live) > 1:
            others = [partition for partition in live if partition != self._current]
            self._current = others[self._rng.randrange(len(others))]
