"""Reads a group's committed offsets from its coordinator; needs no membership.

A partition with a pending transactional offset has no answer yet: the transaction decides first (KIP-447). Offsets come
with the leader epochs of their records: no leader is used that is older (KIP-320). Source: ConsumerCoordinator of Kafka
(`fetchCommittedOffsets`, `refreshCommittedOffsetsIfNeeded`).
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.clients import group_offsets
from anabranch.clients.network import Network
from anabranch.protocol.apis.offset_fetch import OffsetFetchResponse
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition


class CommittedOffsets:
    """The committed offsets of one group."""

    def __init__(self, network: Network, group_id: str) -> None:
        self._network = network
        self.group_id = group_id

    async def fetch(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's committed offsets; -1 for none.

        Partitions with a pending transactional offset are left out: ask again (KIP-447).
        """
        if not partitions:
            return {}
        request = group_offsets.fetch_request(self.group_id, partitions, require_stable=True)

        async def once() -> dict[TopicPartition, int]:
            response: OffsetFetchResponse = await self._network.call_coordinator(
                self.group_id, request, group_offsets.fetch_error
            )
            offsets = group_offsets.stable_offsets(response)
            epochs = {one: row.committed_leader_epoch for one, row in group_offsets.fetched_rows(response)}
            self._network.await_epochs(epochs)
            return offsets

        return await self._network.retry(once)

    async def when_stable(self, partition: TopicPartition) -> int:
        """Return the group's committed offset of a partition, once no open transaction has a pending one."""

        async def once() -> int:
            found = await self.fetch([partition])
            if partition not in found:
                raise KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, str(partition))
            return found[partition]

        return await self._network.retry(once)
