"""Where the leader is, for clients that asked the wrong broker (KIP-951).

Produce v10 and Fetch v16 carry the leader's id, epoch and address beside NOT_LEADER_OR_FOLLOWER and
FENCED_LEADER_EPOCH, so that the client can go there without asking for metadata. The answer is what this broker's
metadata image shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import BrokerImage, MetadataCache

HINTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class LeaderHints:
    """Collects the leaders that one answer names."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self.brokers: dict[int, BrokerImage] = {}
        """The live ones among them."""

    def leader_of(self, topic: str, index: int) -> tuple[int, int]:
        """(leader id, leader epoch) of a partition; -1 where unknown."""
        partition = self._metadata.partition(topic, index)
        if partition is None:
            return -1, -1
        broker = self._metadata.broker(partition.leader)
        if broker is not None:
            self.brokers[broker.id] = broker
        return partition.leader, partition.leader_epoch
