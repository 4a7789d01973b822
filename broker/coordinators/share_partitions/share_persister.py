"""The client of share coordinators, for this broker's share partitions and group coordinator (KIP-932).

The leaders of `__share_group_state` determine which broker stores the state of a key. A request to a broker that is not
the coordinator, or is still loading, is retried until the request timeout. Retries are idempotent. An abandoned request
may still arrive, from the network or the buffers of a frozen broker. So a leader numbers its requests, and one that
arrives after a later one is rejected. (Kafka has no numbers and applies it.) Source: Kafka's `PersisterStateManager`,
`DefaultStatePersister`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.coordinators.share_partitions.in_flight import RecordState, StateBatch
from anabranch.broker.coordinators.share_partitions.share_coordinator import name_of
from anabranch.broker.coordinators.share_partitions.share_state import ShareKey, ShareState
from anabranch.broker.membership.peer_connections import PeerConnections
from anabranch.clients.backoff import Backoff
from anabranch.protocol.apis import delete_share_group_state as deleting
from anabranch.protocol.apis import initialize_share_group_state as initializing
from anabranch.protocol.apis import read_share_group_state as reading
from anabranch.protocol.apis import read_share_group_state_summary as summing
from anabranch.protocol.apis import write_share_group_state as writing
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.hashing import partition_of_group
from anabranch.protocol.internal_topics import SHARE_STATE_TOPIC

if TYPE_CHECKING:
    from anabranch.broker.config.dynamic_config import DynamicConfig
    from anabranch.broker.metadata.metadata_cache import MetadataCache

RETRY: Final = Backoff(initial_ms=20, limit_ms=500)
ELSEWHERE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class SharePersister:
    """Send requests to share coordinators, this broker's included."""

    def __init__(
        self, config: DynamicConfig, metadata: MetadataCache, *, rng: random.Random, now_s: Callable[[], float]
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._rng = rng
        self._now_s = now_s
        self._numbers = itertools.count()
        self._peers = PeerConnections(lambda: config.current, metadata, name="share-partitions")

    async def close(self) -> None:
        """Close the connections."""
        await self._peers.close()

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Start a new incarnation of the group in this partition. Raises KafkaError."""
        row = initializing.PartitionData(partition=key.partition, state_epoch=state_epoch, start_offset=start_offset)
        topic = initializing.InitializeStateData(topic_id=key.topic_id, partitions=[row])
        await self._ask(key, initializing.InitializeShareGroupStateRequest(group_id=key.group, topics=[topic]))

    async def read(self, key: ShareKey, leader_epoch: int) -> ShareState:
        """Return the group's state, and fence leaders before this epoch. Raises KafkaError."""
        row = reading.PartitionData(partition=key.partition, leader_epoch=leader_epoch, number=next(self._numbers))
        topic = reading.ReadStateData(topic_id=key.topic_id, partitions=[row])
        found = await self._ask(key, reading.ReadShareGroupStateRequest(group_id=key.group, topics=[topic]))
        batches = [
            StateBatch(one.first_offset, one.last_offset, RecordState(one.delivery_state), one.delivery_count)
            for one in found.state_batches
        ]
        return ShareState(state_epoch=found.state_epoch, start_offset=found.start_offset, batches=batches)

    async def write(
        self,
        key: ShareKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        complete_count: int,
    ) -> None:
        """Store state changes. Raises KafkaError."""
        row = writing.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            number=next(self._numbers),
            state_batches=[
                writing.StateBatch(
                    first_offset=one.first,
                    last_offset=one.last,
                    delivery_state=one.state,
                    delivery_count=one.delivery_count,
                )
                for one in batches
            ],
        )
        topic = writing.WriteStateData(topic_id=key.topic_id, partitions=[row])
        await self._ask(key, writing.WriteShareGroupStateRequest(group_id=key.group, topics=[topic]))

    async def delete(self, key: ShareKey) -> None:
        """Delete the group's state in this partition. Raises KafkaError."""
        topic = deleting.DeleteStateData(
            topic_id=key.topic_id, partitions=[deleting.PartitionData(partition=key.partition)]
        )
        await self._ask(key, deleting.DeleteShareGroupStateRequest(group_id=key.group, topics=[topic]))

    async def summary(self, key: ShareKey) -> ShareState:
        """Return the group's state without record states. Raises KafkaError."""
        row = summing.PartitionData(partition=key.partition, leader_epoch=-1)
        topic = summing.ReadStateSummaryData(topic_id=key.topic_id, partitions=[row])
        found = await self._ask(key, summing.ReadShareGroupStateSummaryRequest(group_id=key.group, topics=[topic]))
        return ShareState(
            state_epoch=found.state_epoch,
            leader_epoch=found.leader_epoch,
            start_offset=found.start_offset,
            delivery_complete_count=found.delivery_complete_count,
        )

    async def _ask(self, key: ShareKey, request: Any) -> Any:
        """Send a request for one partition and return its row of the response. Raises KafkaError."""
        if SHARE_STATE_TOPIC not in self._metadata.image.topics:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the share state topic does not exist yet")
        until_s = self._now_s() + self._config.current.request_timeout_ms / 1000
        failures = 0
        while True:
            try:
                connection = await self._peers.to(self._coordinator_of(key))
                response = await connection.call(request)
                row = response.results[0].partitions[0]
                if row.error_code == ErrorCode.NONE:
                    return row
                error = KafkaError(ErrorCode(row.error_code), row.error_message or "")
            except (OSError, TimeoutError) as reason:
                error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(reason))
            except KafkaError as reason:
                error = reason
            if error.code not in ELSEWHERE:
                raise error
            if self._now_s() >= until_s:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name_of(key)}: {error}")
            failures += 1
            wait_ms, before = RETRY.wait_ms(failures, self._rng), self._metadata.image
            await self._metadata.wait_until(lambda image, before=before: image is not before, wait_ms)  # type: ignore[misc]

    def _coordinator_of(self, key: ShareKey) -> int:
        image = self._metadata.image
        topic = image.topics.get(SHARE_STATE_TOPIC)
        if topic is not None:
            partition = topic.partitions.get(partition_of_group(name_of(key), len(topic.partitions)))
            if partition is not None and partition.leader in image.brokers:
                return partition.leader
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_STATE_TOPIC} has no leader for {name_of(key)}")
