"""Offsets that leaders are asked for: where a log begins, where it ends, and what was stored first since a moment.

And where to begin in a partition that the group has no committed offset for, or whose offset is gone.

`auto.offset.reset` decides, with one exception (rule R20): a partition that a resize created is read from its start by
a group that has already been reading the topic, whatever the policy says. With `latest` the records produced between
the split and its discovery would be lost otherwise.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from anabranch.clients.metadata import NO_LEADER
from anabranch.clients.network import GROUP, Network
from anabranch.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
_POLICIES: Final = {"latest": LATEST, "earliest": EARLIEST}
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ISOLATION_LEVELS: Final = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


class OffsetAndTimestamp(NamedTuple):
    """A record that was looked for by its time; the timestamp is -1 where an end of the log was asked for."""

    offset: int
    timestamp_ms: int


class OffsetResets:
    """One consumer's reset policy."""

    def __init__(self, policy: str, isolation_level: int = READ_UNCOMMITTED) -> None:
        if policy not in (*_POLICIES, "none"):
            raise ValueError(f'auto_offset_reset is "earliest", "latest" or "none", not {policy!r}')
        self._policy = policy
        self._isolation_level = isolation_level

    async def find(
        self, network: Network, partitions: Sequence[TopicPartition], resumed: Collection[str]
    ) -> dict[TopicPartition, int]:
        """The starting offset of each partition that can be asked now. `resumed`: topics with offsets of the group.

        One without a leader, or gone since, is left out: it must not hold up the others.
        """
        led = [partition for partition in partitions if network.metadata.leader(*partition) != NO_LEADER]
        if len(led) < len(partitions):
            network.request_refresh()
        asked = [(partition, self._timestamp(network, partition, resumed)) for partition in led]
        answers = await asyncio.gather(
            *(network.retry(functools.partial(self._ask, network, partition, at)) for partition, at in asked)
        )
        return {partition: one.offset for partition, one in zip(led, answers, strict=True) if one is not None}

    def _timestamp(self, network: Network, partition: TopicPartition, resumed: Collection[str]) -> int:
        topic = network.metadata.topics.get(partition.topic)
        if topic is not None and topic.lineage is not None and partition.topic in resumed:
            created = topic.lineage.class_generations(partition.partition)
            if created and created[0] > topic.lineage.history[0][0]:
                return EARLIEST
        if self._policy == "none":
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has no committed offset and auto_offset_reset is none"
            )
        return _POLICIES[self._policy]

    async def _ask(self, network: Network, partition: TopicPartition, at: int) -> OffsetAndTimestamp | None:
        """One question; None where there is no leader any more: the partition may have been removed meanwhile."""
        leader = network.metadata.leader(*partition)
        return None if leader == NO_LEADER else await _ask(network, leader, partition, at, self._isolation_level)


async def find_offsets(
    network: Network, wanted: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """What stands first at each timestamp (ms, LATEST or EARLIEST); None where everything is older.

    Waits for leaders, no longer than for an answer: TimeoutError. KafkaError when a topic is refused.
    """

    async def ask(partition: TopicPartition, at: int) -> OffsetAndTimestamp:
        return await _ask(network, await network.leader_of(partition), partition, at, isolation_level)

    answers = await asyncio.gather(*(network.retry(functools.partial(ask, *one)) for one in wanted.items()))
    found = dict(zip(wanted, answers, strict=True))
    return {partition: one if one.offset >= 0 else None for partition, one in found.items()}


async def _ask(
    network: Network, leader: int, partition: TopicPartition, timestamp: int, isolation_level: int
) -> OffsetAndTimestamp:
    known = network.metadata.partition(*partition)
    epoch = known.leader_epoch if known is not None else -1
    question = ListOffsetsPartition(
        partition_index=partition.partition, current_leader_epoch=epoch, timestamp=timestamp
    )
    # The latest offset for those who read committed records is where the oldest open transaction begins.
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=partition.topic, partitions=[question])],
    )
    # Not behind a fetch that waits for records.
    response: ListOffsetsResponse = await network.call(leader, request, channel=GROUP)
    row = response.topics[0].partitions[0]
    if row.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(row.error_code), f"offsets of {partition}")
    return OffsetAndTimestamp(row.offset, row.timestamp)
