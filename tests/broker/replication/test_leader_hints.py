"""NOT_LEADER_OR_FOLLOWER responses name the leader."""

from __future__ import annotations

from anabranch.broker.metadata.metadata_cache import (
    BrokerImage,
    ClusterImage,
    MetadataCache,
    PartitionImage,
    TopicImage,
)
from anabranch.broker.replication.leader_hints import LeaderHints
from anabranch.protocol.apis.common_structs import LeaderIdAndEpoch, NodeEndpoint


def partition(index: int, leader: int) -> PartitionImage:
    return PartitionImage(index, leader, 7, isr=(1, 2), replicas=(1, 2), offline_replicas=(), partition_epoch=0)


def test_leaders_are_returned_with_epochs_and_addresses_of_live_ones() -> None:
    metadata = MetadataCache()
    one = BrokerImage(1, "h", 9, None, 3, endpoints={"PLAINTEXT": ("h", 9)})
    metadata.image = ClusterImage(
        brokers={1: one}, topics={"t": TopicImage("t", bytes(16), {0: partition(0, 1), 1: partition(1, 2)})}
    )
    hints = LeaderHints(metadata)
    assert hints.leader_of("t", 1) == LeaderIdAndEpoch(leader_id=2, leader_epoch=7), (
        "one that is not alive is named, but nobody knows where it is"
    )
    assert not hints.brokers
    assert hints.leader_of("t", 0) == hints.leader_of("t", 0) == LeaderIdAndEpoch(leader_id=1, leader_epoch=7)
    assert hints.brokers == {1: one}
    assert hints.endpoints("PLAINTEXT") == [NodeEndpoint(node_id=1, host="h", port=9, rack=None)]
    assert hints.leader_of("t", 5) == hints.leader_of("no", 0) == LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
