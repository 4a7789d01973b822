"""Requests about a group's committed offsets, and the offsets and errors in their responses.

A member commits with its generation and its member id; a tool has neither. Pure: `classic_group_session`,
`committed_offsets` and `group_admin` send the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import index as as_index
from typing import Any, Final

from anabranch.protocol.apis.consumer_group_position import (
    ConsumerGroupPositionRequest,
    ConsumerGroupPositionRequestPartition,
    ConsumerGroupPositionRequestTopic,
)
from anabranch.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from anabranch.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.protocol.wire import ZERO_UUID

OFFSET_MAX: Final = 2**63 - 1


def commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    topic_ids: Mapping[str, bytes] | None = None,
    leader_epoch_of: Callable[[str, int], int] = lambda topic, index: -1,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> OffsetCommitRequest:
    """Build a commit of offsets, the next ones to read; by a tool if there is no member.

    Topics with an id in `topic_ids` get the offsets only while it is still theirs.

    Raises TypeError or ValueError for offsets that no request can carry.
    """
    offsets = checked_offsets(offsets)
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        row = OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch_of(topic, index),
            committed_metadata="",
        )
        topics.setdefault(topic, []).append(row)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=name, partitions=rows, expected_topic_id=(topic_ids or {}).get(name, ZERO_UUID)
            )
            for name, rows in topics.items()
        ],
    )


def checked_offsets(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return a copy of an application's offsets. Raises TypeError or ValueError if no request could carry them."""
    checked: dict[TopicPartition, int] = {}
    for partition, offset in dict(offsets).items():
        if not (isinstance(partition, tuple) and len(partition) == 2 and isinstance(partition[0], str)):
            raise TypeError(f"offsets are by TopicPartition, not by {partition!r}")
        checked[TopicPartition(partition[0], as_index(partition[1]))] = as_index(offset)
        if not 0 <= offset <= OFFSET_MAX:
            what = "negative" if offset < 0 else "above 2^63 - 1"
            raise ValueError(f"the offset to commit of {partition[0]}-{partition[1]} is {what}: {offset}")
    return checked


def commit_errors(response: OffsetCommitResponse) -> dict[TopicPartition, ErrorCode]:
    """Return the outcome of each partition's commit."""
    return {
        TopicPartition(topic.name, row.partition_index): ErrorCode(row.error_code)
        for topic in response.topics
        for row in topic.partitions
    }


def first_commit_error(response: OffsetCommitResponse) -> int:
    """Return the first error of a commit; NONE if all partitions have succeeded."""
    return next(filter(None, commit_errors(response).values()), ErrorCode.NONE)


def fetch_request(
    group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool = False
) -> OffsetFetchRequest:
    """Build a request for committed offsets, in the layouts of one and of many groups; None: of all partitions."""
    if partitions is None:
        group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        return OffsetFetchRequest(group_id=group_id, topics=None, groups=[group], require_stable=require_stable)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    named = [OffsetFetchRequestTopics(name=name, partition_indexes=rows) for name, rows in topics.items()]
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[OffsetFetchRequestTopic(name=name, partition_indexes=rows) for name, rows in topics.items()],
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=named)],
        require_stable=require_stable,
    )


def fetched_rows(response: OffsetFetchResponse) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield each partition with its row: offset, leader epoch and error."""
    topics: Iterable[Any] = response.groups[0].topics if response.groups else response.topics
    for topic in topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row


def fetch_error(response: OffsetFetchResponse) -> int:
    """Return the error of the whole group."""
    return response.groups[0].error_code if response.groups else response.error_code


def stable_offsets(response: OffsetFetchResponse) -> dict[TopicPartition, int]:
    """Return the committed offsets, without those of partitions with a pending one. Raises KafkaError for others."""
    found: dict[TopicPartition, int] = {}
    for partition, row in fetched_rows(response):
        if row.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            continue
        if row.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(row.error_code), f"offset of {partition}")
        found[partition] = row.committed_offset
    return found


def position_request(
    group_id: str, awaited: Mapping[TopicPartition, int], *, generation: int, member_id: str, max_wait_ms: int
) -> ConsumerGroupPositionRequest:
    """Build a long poll that ends when a committed offset reaches its awaited value (R9, K616)."""
    topics: dict[str, list[ConsumerGroupPositionRequestPartition]] = {}
    for (topic, index), offset in sorted(awaited.items()):
        row = ConsumerGroupPositionRequestPartition(
            partition=index, need_position=True, position=-1, awaited_offset=offset
        )
        topics.setdefault(topic, []).append(row)
    return ConsumerGroupPositionRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        topics=[ConsumerGroupPositionRequestTopic(topic=name, partitions=rows) for name, rows in topics.items()],
        max_wait_ms=max_wait_ms,
    )
