"""Looks up offsets at leaders, by timestamp or at the log's ends, and applies the reset policy.

The policy decides where to start in a partition without a valid committed offset.

`auto.offset.reset` has one exception (rule R20): a group that has been reading the topic reads a partition that a
resize created from its start, whatever the policy. With `latest` the records produced between the split and its
discovery would otherwise be lost.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from anabranch.clients.iso_duration import parse_duration_ms
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
BY_DURATION: Final = "by_duration:"
_POLICIES: Final = {"latest": LATEST, "earliest": EARLIEST}
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ISOLATION_LEVELS: Final = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


class OffsetAndTimestamp(NamedTuple):
    """A record found by its time; the timestamp is -1 for an end of the log."""

    offset: int
    timestamp_ms: int


class OffsetResets:
    """The reset policy of one consumer. `clock_ms` is its clock, for a policy by duration (KIP-1106)."""

    def __init__(
        self,
        policy: str,
        isolation_level: int = READ_UNCOMMITTED,
        *,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self._age_ms: int | None = None
        if policy.startswith(BY_DURATION) and clock_ms is not None:
            self._age_ms = parse_duration_ms(policy.removeprefix(BY_DURATION))
        elif policy not in (*_POLICIES, "none"):
            raise ValueError(f'auto_offset_reset is "earliest", "latest", "none" or "by_duration:PT1H", not {policy!r}')
        self._policy = policy
        self._isolation_level = isolation_level
        self._clock_ms = clock_ms

    async def find(
        self,
        network: Network,
        partitions: Sequence[TopicPartition],
        resumed: Collection[str],
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, int]:
        """Return the starting offset of each partition whose leader answers. `resumed`: topics with offsets of the
        group.

        A partition without a leader, or removed since, is left out: it must not delay the others. Failed attempts are
        repeated for up to `timeout_ms`, by default for the client's request timeout.
        """
        led = [partition for partition in partitions if network.metadata.leader(*partition) != NO_LEADER]
        if len(led) < len(partitions):
            network.request_refresh()
        queries = [(partition, self._timestamp(network, partition, resumed)) for partition in led]
        answers = await asyncio.gather(
            *(
                network.retry(functools.partial(self._ask, network, partition, at), timeout_ms=timeout_ms)
                for partition, at in queries
            )
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
        if self._age_ms is not None and self._clock_ms is not None:
            return max(self._clock_ms() - self._age_ms, 0)
        return _POLICIES[self._policy]

    async def _ask(self, network: Network, partition: TopicPartition, at: int) -> OffsetAndTimestamp | None:
        """Send one query; return None without a leader: the partition may have been removed meanwhile."""
        leader = network.metadata.leader(*partition)
        if leader == NO_LEADER:
            return None
        found = await _ask(network, leader, partition, at, self._isolation_level)
        if found.offset < 0:  # all records are older than the policy's duration
            found = await _ask(network, leader, partition, LATEST, self._isolation_level)
        return found


async def find_offsets(
    network: Network, timestamps: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Return the first record at or after each timestamp (ms, LATEST or EARLIEST); None if all are older.

    Waits for leaders as long as for a response, then raises TimeoutError. Raises KafkaError if a topic is refused, or a
    partition removed.
    """

    async def ask(partition: TopicPartition, at: int) -> OffsetAndTimestamp:
        return await _ask(network, await network.leader_of(partition), partition, at, isolation_level)

    answers = await asyncio.gather(*(network.retry(functools.partial(ask, *one)) for one in timestamps.items()))
    found = dict(zip(timestamps, answers, strict=True))
    return {partition: one if one.offset >= 0 else None for partition, one in found.items()}


async def _ask(
    network: Network, leader: int, partition: TopicPartition, timestamp: int, isolation_level: int
) -> OffsetAndTimestamp:
    known = network.metadata.partition(*partition)
    epoch = known.leader_epoch if known is not None else -1
    question = ListOffsetsPartition(
        partition_index=partition.partition, current_leader_epoch=epoch, timestamp=timestamp
    )
    # With read_committed, the latest offset is the last stable offset.
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=partition.topic, partitions=[question])],
    )
    # Not queued behind a fetch that waits for records.
    response: ListOffsetsResponse = await network.call(leader, request, channel=GROUP)
    row = response.topics[0].partitions[0]
    if row.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(row.error_code), f"offsets of {partition}")
    return OffsetAndTimestamp(row.offset, row.timestamp)
