"""Draining partitions: the groups that must still read them, and the deletion of records that all groups have read.

The controller removes a draining partition once it is empty; retention empties it over time. Groups without a committed
offset in the topic do not count. A share group has read all records before its start offset, and none in a partition
without one. Deleting unread records opens a group's gates although the group never reads them: that needs `force`
(K705).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.clients.group_admin import CONSUMER, SHARE, STREAMS, committed_offsets, list_groups
from anabranch.clients.group_gates import key_epoch_ends
from anabranch.clients.group_kinds import shared_offsets
from anabranch.clients.metadata import NO_LEADER
from anabranch.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.network import Network


@dataclass(frozen=True, slots=True)
class Draining:
    """A draining partition."""

    partition: TopicPartition
    end: int
    committed: Mapping[str, int]
    """Group -> committed offset, of every group with a committed offset in the topic; 0 without one in this partition.

    For a share group it is the start offset.
    """

    @property
    def read_by_all(self) -> int:
        """The offset below which all groups have read everything."""
        return min(self.committed.values(), default=self.end)


async def draining(admin: Admin, name: str) -> list[Draining]:
    """The sealed partitions of a topic, with the groups' committed offsets. Raises KafkaError."""
    topic = await admin.describe_topic(name)
    if topic.lineage is None:
        raise ValueError(f"{name} has enable.ordered.delivery=false: it has no retiring partitions")
    network = admin.network
    network.follow(name)
    await network.refresh()
    commits = {
        **await _of_each(committed_offsets, network, CONSUMER, STREAMS, ""),
        **await _of_each(_read_by_sharers, network, SHARE),
    }
    readers = {group: offsets for group, offsets in commits.items() if any(one.topic == name for one in offsets)}
    ends = await key_epoch_ends(network, topic)
    sealed = [index for index in sorted(topic.partitions) if not topic.lineage.live(index)]
    states = []
    for index in sealed:
        partition = TopicPartition(name, index)
        end = max((end for key_epoch, end in ends.items() if key_epoch.partition == index), default=0)
        states.append(Draining(partition, end, {group: of.get(partition, 0) for group, of in readers.items()}))
    return states


async def _of_each(
    offsets: Callable[[Network, str], Awaitable[dict[TopicPartition, int]]], network: Network, *protocol_types: str
) -> dict[str, dict[TopicPartition, int]]:
    groups = sorted(await list_groups(network, *protocol_types))
    return dict(zip(groups, await asyncio.gather(*(offsets(network, one) for one in groups)), strict=True))


async def _read_by_sharers(network: Network, group_id: str) -> dict[TopicPartition, int]:
    return {one: at.start or 0 for one, at in (await shared_offsets(network, group_id)).items()}


def drain_lines(name: str, states: list[Draining]) -> list[str]:
    """The groups' progress as lines of text."""
    if not states:
        return [f"{name} has no retiring partitions"]
    lines = [f"{'partition':>9}  {'end':>12}  {'group':<24} {'committed':>12} {'to read':>12}"]
    for state in states:
        rows = state.committed or {"(no group reads the topic)": state.end}
        for group, committed in sorted(rows.items()):
            left = max(state.end - committed, 0)
            lines.append(f"{state.partition.partition:>9}  {state.end:>12,}  {group:<24} {committed:>12,} {left:>12,}")
    return lines


async def delete_read(admin: Admin, name: str, states: list[Draining], *, force: bool) -> list[str]:
    """Delete the records that every group has read, or with `force` all of them.

    Returns lines of text that report the deletion. Raises KafkaError.
    """
    lines = []
    for state in states:
        upto = state.end if force else min(state.read_by_all, state.end)
        behind = sorted(group for group, committed in state.committed.items() if committed < state.end)
        if upto > 0:
            await _delete_before(admin, state.partition, upto)
            lines.append(f"{state.partition}: deleted records before offset {upto:,}")
        if behind and not force:
            lines.append(f"{state.partition}: kept the rest for {', '.join(behind)}")
    return lines


async def _delete_before(admin: Admin, partition: TopicPartition, offset: int) -> None:
    row = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=partition.topic, partitions=[row])], timeout_ms=30000
    )

    async def once() -> None:
        metadata = admin.network.metadata
        if metadata.partition(*partition) is None:
            return  # the partition is gone, with its records
        leader = metadata.leader(*partition)
        if leader == NO_LEADER:
            await admin.network.refresh()
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))
        response: DeleteRecordsResponse = await admin.network.call(leader, request)
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:  # it is above the high watermark; deleted records are no error
            raise KafkaError(code, f"{partition}: in-sync replicas lack records, so these cannot be deleted: try again")
        if code != ErrorCode.NONE:
            raise KafkaError(code, str(partition))

    await admin.network.retry(once)
