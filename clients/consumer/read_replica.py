"""Chooses the replica to fetch from: the leader, or temporarily one in the consumer's rack (KIP-392).

The leader names a replica. It is used until metadata expires, the replica leaves the ISR, or an error occurs; then the
leader is asked again. Source: Kafka's `SubscriptionState.updatePreferredReadReplica`.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.clients.metadata import Node, Partition
from anabranch.protocol.topic_partition import TopicPartition


class ReadReplicas:
    """The replicas that leaders have named."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._named: dict[TopicPartition, tuple[int, float]] = {}

    def node_for(self, where: TopicPartition, partition: Partition, nodes: Mapping[int, Node], now_s: float) -> int:
        """Return the node to fetch a partition from."""
        named = self._named.get(where)
        if named is None:
            return partition.leader
        node_id, until_s = named
        if now_s < until_s and node_id in nodes and node_id in partition.isr:
            return node_id
        del self._named[where]
        return partition.leader

    def prefer(self, where: TopicPartition, node_id: int, now_s: float) -> None:
        """Set the replica that the leader named."""
        self._named[where] = (node_id, now_s + self._lease_s)

    def forget(self, where: TopicPartition) -> bool:
        """Return to the leader; return whether another replica was in use."""
        return self._named.pop(where, None) is not None
