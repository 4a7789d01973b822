"""Calls an application's own partitioner for every record without a partition, and checks its result.

Allowed results: any live partition for a record without a key; for a keyed record its partition by linear hashing,
because otherwise the key's records would be in two partitions, without order. In a topic with
`enable.ordered.delivery=false`, and in a cluster without generations, the choice is free; it then counts as a named
partition: the record is never moved.

Pure except for the application's code. Order of the calls: `Partitioner` in `clients.producer.partitioner`.
"""

from __future__ import annotations

from operator import index as as_index
from typing import Any

from anabranch.clients.producer.partitioner import ClusterView, Partitioner, PartitionerFunction
from anabranch.clients.producer.queues import TopicQueues
from anabranch.clients.producer.routes import UNKEYED, explicit_route


class OwnPartitioner:
    """One application's partitioner. `waits_for_replicas`: whether the producer has acks=all."""

    def __init__(
        self,
        given: Partitioner | PartitionerFunction,
        cluster: ClusterView,
        *,
        waits_for_replicas: bool,
        batch_bytes: int,
    ) -> None:
        function: Any = getattr(given, "partition", given)
        if isinstance(given, type) or not callable(function):
            raise ValueError(
                "partitioner is linear, modulo, a function, or an object with a method `partition`, "
                f"not {given!r}: see `clients.Partitioner`"
            )
        self._partition = function
        self._on_new_batch: Any = getattr(given, "on_new_batch", None)
        self._cluster = cluster
        self._waits_for_replicas = waits_for_replicas
        self._batch_bytes = batch_bytes

    def place(
        self, topic: TopicQueues, route: int, key: bytes | None, value: bytes | None, size_bytes: int
    ) -> tuple[int, int]:
        """Return a record's partition and its route from now on. Raises ValueError for a result that is not allowed."""
        index = self._choose(topic, key, value)
        if self._on_new_batch is not None and topic.queue(index).begins_batch(size_bytes, self._batch_bytes):
            self._on_new_batch(topic.name, self._cluster, index)
            index = self._choose(topic, key, value)
        if key is None:
            return UNKEYED, index
        if topic.lineage is None or not topic.gated:
            return explicit_route(index), index
        home = topic.address(route)
        if index != home:
            raise ValueError(
                f"{topic.name}: the partitioner chose partition {index} for the key {key!r}, which belongs in "
                f"{home}: ask `cluster.partition_for_key`, or set enable.ordered.delivery=false on the topic"
            )
        return route, index

    def _choose(self, topic: TopicQueues, key: bytes | None, value: bytes | None) -> int:
        chosen = self._partition(topic.name, key, key, value, value, self._waits_for_replicas, self._cluster)
        try:
            index = as_index(chosen)
        except TypeError:
            raise ValueError(f"{topic.name}: the partitioner returned {chosen!r}, which is not a partition") from None
        if index not in topic.live:
            raise ValueError(
                f"{topic.name}: the partitioner chose partition {index}, but records go to {list(topic.live)}"
            )
        return index
