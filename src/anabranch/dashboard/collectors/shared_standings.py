"""Where groups that share partitions stand, as the share coordinators of a cluster in this process keep it (KIP-932).

Such a group commits nothing: its start in a partition is what a committed offset is for others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.broker.coordinators.share_partitions.share_state import ShareState
    from anabranch.cluster.in_process import Cluster

Standings = dict[str, dict[tuple[str, int], "ShareState"]]
"""Group -> (topic, partition) -> where it stands, of what some member has begun to read."""


def shared_standings(cluster: Cluster) -> Standings:
    """Those of all groups."""
    found: Standings = {}
    for node in cluster.nodes.values():
        shares = None if node.services.broker is None else node.services.broker.shares.built
        for shard in () if shares is None else shares.coordinator.shards():
            for key, state in shard.states.items():
                topic = node.services.metadata.topic_name(key.topic_id)
                if topic is not None and state.start_offset >= 0:
                    found.setdefault(key.group, {})[topic, key.partition] = state
    return found
