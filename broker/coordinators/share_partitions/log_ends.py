"""Queries the leaders of partitions for their log ends, to compute the lag of share groups (KIP-1226).

Partitions that this broker leads need no query. Source: Kafka's `NetworkPartitionMetadataClient`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from anabranch.broker.membership.peer_connections import PeerConnections
from anabranch.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.broker.replication.replica_manager import ReplicaManager

LATEST: Final = -1
A_CLIENT: Final = -1


class LogEnds:
    """Query leaders for high watermarks."""

    def __init__(
        self, settings: Callable[[], BrokerSettings], replicas: ReplicaManager, metadata: MetadataCache
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._peers = PeerConnections(settings, metadata, name="group-coordinator")

    async def close(self) -> None:
        """Close the connections to leaders."""
        await self._peers.close()

    async def end(self, topic: str, index: int) -> int | None:
        """Return the high watermark of a partition; None if its leader does not respond with one."""
        replica = self._replicas.replica(topic, index)
        if replica is not None and replica.is_leader:
            return replica.high_watermark
        image = self._metadata.topic(topic)
        partition = None if image is None else image.partitions.get(index)
        if partition is None:
            return None
        row = ListOffsetsPartition(partition_index=index, current_leader_epoch=partition.leader_epoch, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=A_CLIENT, isolation_level=0, topics=[ListOffsetsTopic(name=topic, partitions=[row])]
        )
        try:
            connection = await self._peers.to(partition.leader)
            response: ListOffsetsResponse = await connection.call(request)
        except (KafkaError, OSError, TimeoutError):
            return None
        answer = response.topics[0].partitions[0]
        return answer.offset if answer.error_code == ErrorCode.NONE else None
