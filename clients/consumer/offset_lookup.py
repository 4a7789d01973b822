"""Looks up offsets at leaders, by timestamp or at the log's ends, and applies the reset policy.

Each leader gets one request for all of its partitions. A retry repeats only the queries without an answer.

The policy decides where to start in a partition without a valid committed offset.

`auto.offset.reset` has one exception (rule R20): a group that has been reading the topic reads a partition that a
resize created from its start, whatever the policy. With `latest` the records produced between the split and its
discovery would otherwise be lost.
"""

from __future__ import annotations

import asyncio
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


FAILURES: Final = (ConnectionError, TimeoutError, KafkaError)
"""The errors of a leader that does not answer, or refuses."""
FoundOffsets = dict[TopicPartition, OffsetAndTimestamp]


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
        self, network: Network, partitions: Sequence[TopicPartition], resumed: Collection[str]
    ) -> dict[TopicPartition, int]:
        """Return what `find_available` finds, or raise its error."""
        starts, error = await self.find_available(network, partitions, resumed)
        if error is not None:
            raise error
        return starts

    async def find_available(
        self,
        network: Network,
        partitions: Sequence[TopicPartition],
        resumed: Collection[str],
        *,
        timeout_ms: float | None = None,
    ) -> tuple[dict[TopicPartition, int], Exception | None]:
        """Return the starting offset of each partition whose leader answers, and the error of another one. `resumed`:
        topics with offsets of the group.

        A partition without a leader, or removed since, is left out: it must not delay the others. Failed attempts are
        repeated for up to `timeout_ms`, by default for the client's request timeout.
        """
        led = [partition for partition in partitions if network.metadata.leader(*partition) != NO_LEADER]
        if len(led) < len(partitions):
            network.request_refresh()
        timestamps = {partition: self._timestamp(network, partition, resumed) for partition in led}
        found: FoundOffsets = {}

        async def ask() -> None:
            failure: Exception | None = None
            try:
                await self._ask_present_leaders(network, timestamps, found)
            except FAILURES as error:
                failure = error
            # Partitions whose records are all older than the policy's duration start at their ends, whether the leaders
            # of others have answered or not.
            late = {partition: LATEST for partition, one in found.items() if one.offset < 0}
            for partition in late:
                del found[partition]
            timestamps.update(late)
            if late:
                await self._ask_present_leaders(network, late, found)
            if failure is not None:
                raise failure

        failure: Exception | None = None
        try:
            await network.retry(ask, timeout_ms=timeout_ms)
        except FAILURES as error:
            failure = error
        return {one: found[one].offset for one in led if one in found and found[one].offset >= 0}, failure

    async def _ask_present_leaders(
        self, network: Network, timestamps: Mapping[TopicPartition, int], found: FoundOffsets
    ) -> None:
        """Send the queries without an answer, but not those of partitions that have lost their leader."""
        leaders = {
            partition: leader
            for partition in timestamps
            if partition not in found and (leader := network.metadata.leader(*partition)) != NO_LEADER
        }
        await _ask_leaders(network, leaders, timestamps, self._isolation_level, found)

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


async def find_offsets(
    network: Network, timestamps: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Return the first record at or after each timestamp (ms, LATEST or EARLIEST); None if all are older.

    Waits for leaders as long as for a response, then raises TimeoutError. Raises KafkaError if a topic is refused, or a
    partition removed.
    """
    found: FoundOffsets = {}

    async def ask() -> None:
        left = [partition for partition in timestamps if partition not in found]
        leaders = await asyncio.gather(*map(network.leader_of, left))
        await _ask_leaders(network, dict(zip(left, leaders, strict=True)), timestamps, isolation_level, found)

    await network.retry(ask)
    return {partition: found[partition] if found[partition].offset >= 0 else None for partition in timestamps}


async def _ask_leaders(
    network: Network,
    leaders: Mapping[TopicPartition, int],
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int,
    found: FoundOffsets,
) -> None:
    """Send one request to each leader of these partitions, and add the answers to `found`.

    Raises an error when all leaders have answered: one that a retry cannot mend, if there is any.
    """
    by_leader: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
    for (topic, index), leader in leaders.items():
        known = network.metadata.partition(topic, index)
        epoch = known.leader_epoch if known is not None else -1
        question = ListOffsetsPartition(
            partition_index=index, current_leader_epoch=epoch, timestamp=timestamps[TopicPartition(topic, index)]
        )
        by_leader.setdefault(leader, {}).setdefault(topic, []).append(question)
    outcomes = await asyncio.gather(
        *(_ask(network, leader, questions, isolation_level, found) for leader, questions in by_leader.items()),
        return_exceptions=True,
    )
    errors = [one for one in outcomes if one is not None]
    if errors:
        raise next((one for one in errors if isinstance(one, KafkaError) and not one.code.retriable), errors[0])


async def _ask(
    network: Network,
    leader: int,
    questions: Mapping[str, list[ListOffsetsPartition]],
    isolation_level: int,
    found: FoundOffsets,
) -> None:
    # With read_committed, the latest offset is the last stable offset.
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in questions.items()],
    )
    # Not queued behind a fetch that waits for records.
    response: ListOffsetsResponse = await network.call(leader, request, channel=GROUP)
    errors: list[KafkaError] = []
    for topic in response.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code == ErrorCode.NONE:
                found[partition] = OffsetAndTimestamp(row.offset, row.timestamp)
            else:
                errors.append(KafkaError(ErrorCode(row.error_code), f"offsets of {partition}"))
    if errors:
        raise next((one for one in errors if not one.code.retriable), errors[0])
