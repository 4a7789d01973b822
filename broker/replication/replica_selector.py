"""Selects the replica that a consumer should read from: one in its rack, if `replica.selector.class` is set (KIP-392).

Only a live in-sync replica with the requested offset is selected. Source: Kafka's `RackAwareReplicaSelector`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.broker.replication.partition import Partition

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER: Final = -1
"""No replica is preferred to the leader."""


def preferred_replica(partition: Partition, offset: int, rack: str, metadata: MetadataCache) -> int:
    """Return the most caught-up replica in `rack` that can serve `offset`, or LEADER.

    A broker that does not lead the partition knows no followers, and so returns LEADER.
    """
    leader = metadata.broker(partition.leader_id)
    if leader is not None and leader.rack == rack:
        return LEADER
    chosen, best = LEADER, (-1, 0.0)
    for replica, follower in partition.followers.items():
        if replica not in partition.isr or not follower.log_start_offset <= offset <= follower.log_end_offset:
            continue
        broker = metadata.broker(replica)
        progress = (follower.log_end_offset, follower.seen_caught_up_ms)
        if broker is not None and broker.rack == rack and progress > best:
            chosen, best = replica, progress
    return chosen
