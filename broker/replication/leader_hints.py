"""The present leader in the response to a client that asked the wrong broker (KIP-951).

Produce v10 and Fetch v16 carry the leader's id, epoch and address with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH,
so the client needs no Metadata request. The data come from this broker's metadata cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.protocol.apis.common_structs import LeaderIdAndEpoch, NodeEndpoint
from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import BrokerImage, MetadataCache

HINTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class LeaderHints:
    """The leaders that one response names."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self.brokers: dict[int, BrokerImage] = {}
        """The live brokers among them."""

    def leader_of(self, topic: str, index: int) -> LeaderIdAndEpoch:
        """Return the leader of a partition; -1 if unknown."""
        partition = self._metadata.partition(topic, index)
        if partition is None:
            return LeaderIdAndEpoch()
        broker = self._metadata.broker(partition.leader)
        if broker is not None:
            self.brokers[broker.id] = broker
        return LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)

    def endpoints(self, listener: str) -> list[NodeEndpoint]:
        """Return the addresses of the named leaders."""
        return [
            NodeEndpoint(node_id=one.id, host=where[0], port=where[1], rack=one.rack)
            for one in self.brokers.values()
            if (where := one.at(listener)) is not None
        ]
