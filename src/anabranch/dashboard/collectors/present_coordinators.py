"""Tells the present coordinator of a group or transactional id from former ones, which do not know it.

A frozen node, or one that is cut off from ZooKeeper, keeps the groups that it coordinated, while another node has
loaded them. It is recognised by its leader epoch of the internal topic's partition: another node has a higher one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.protocol.hashing import partition_of_group

if TYPE_CHECKING:
    from anabranch.cluster.cluster_view import ClusterView

IsPresent = Callable[[int, str], bool]
"""Node id and group id or transactional id -> whether no other node has replaced this node as coordinator."""


def former_leaders(cluster: ClusterView, topic: str) -> set[tuple[int, int]]:
    """Return node id and partition, wherever another node has a higher leader epoch of that partition."""
    epochs: dict[int, dict[int, int]] = {}
    for node_id, node in cluster.nodes.items():
        known = None if node.services.broker is None else node.services.metadata.image.topics.get(topic)
        for index in () if known is None else known.partitions:
            replica = node.services.replicas.replica(topic, index)
            if replica is not None:
                epochs.setdefault(index, {})[node_id] = replica.leader_epoch
    return {
        (node_id, index)
        for index, by_node in epochs.items()
        for node_id, epoch in by_node.items()
        if epoch < max(by_node.values())
    }


def present_coordinators(cluster: ClusterView, topic: str) -> IsPresent:
    """Return a function that recognises former coordinators of the keys of an internal topic."""
    former = former_leaders(cluster, topic)
    if not former:
        return lambda node_id, key: True
    images = (node.services.metadata.image.topics.get(topic) for node in cluster.nodes.values())
    count = max(len(one.partitions) for one in images if one is not None)
    return lambda node_id, key: (node_id, partition_of_group(key, count)) not in former
