"""The positions of share groups, from the share coordinators of a cluster in this process (KIP-932).

A share group commits nothing: its start offset in a partition corresponds to a committed offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.dashboard.collectors.present_coordinators import former_leaders
from anabranch.protocol.internal_topics import SHARE_STATE_TOPIC

if TYPE_CHECKING:
    from anabranch.broker.coordinators.share_partitions.share_state import ShareState
    from anabranch.cluster.cluster_view import ClusterView

Standings = dict[str, dict[tuple[str, int], "ShareState"]]
"""Group -> (topic, partition) -> state, for partitions that a member has begun to read."""


def shared_standings(cluster: ClusterView) -> Standings:
    """The positions of all share groups."""
    found: Standings = {}
    former = former_leaders(cluster, SHARE_STATE_TOPIC)
    for node_id, node in cluster.nodes.items():
        shares = None if node.services.broker is None else node.services.broker.shares.built
        for shard in () if shares is None else shares.coordinator.shards():
            if (node_id, shard.partition) in former:
                continue
            for key, state in shard.states.items():
                topic = node.services.metadata.topic_name(key.topic_id)
                if topic is not None and state.start_offset >= 0:
                    found.setdefault(key.group, {})[topic, key.partition] = state
    return found
