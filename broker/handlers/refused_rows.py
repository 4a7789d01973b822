"""Orders the rows of a response as Kafka does if some of the requested partitions are refused.

Kafka refuses partitions that are missing or unauthorized before it carries out a request. Their rows are the first ones
in responses about committed offsets, and the last ones in Fetch and in responses about offsets of logs. Sources:
`OffsetCommitResponse.Builder`, `KafkaApis.handleFetchRequest`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Final, TypeVar

from anabranch.protocol.apis.fetch import FetchableTopicResponse
from anabranch.protocol.apis.list_offsets import ListOffsetsTopicResponse
from anabranch.protocol.apis.offset_for_leader_epoch import OffsetForLeaderTopicResult
from anabranch.protocol.errors import ErrorCode

PLACE_IN_FETCH: Final[dict[int, int]] = {
    ErrorCode.UNKNOWN_TOPIC_ID: 1,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 2,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2,
}
"""The errors of a fetched partition that is refused before any log is read; all other rows come first."""

Topic = TypeVar("Topic", bound=Hashable)
TopicRow = TypeVar("TopicRow", ListOffsetsTopicResponse, OffsetForLeaderTopicResult)


def refused_first(
    requested: Iterable[tuple[Topic, int]], refused: Collection[tuple[Topic, int]]
) -> dict[Topic, list[int]]:
    """Return the partitions by topic: the refused ones of all topics, then the others."""
    rows: dict[Topic, list[int]] = {}
    for topic, index in sorted(requested, key=lambda one: one not in refused) if refused else requested:
        rows.setdefault(topic, []).append(index)
    return rows


def unauthorized_last(topics: list[TopicRow]) -> list[TopicRow]:
    """Return the rows of topics with those of unauthorized topics behind all others."""
    return sorted(
        topics,
        key=lambda one: bool(one.partitions) and one.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def refused_last(topics: list[FetchableTopicResponse]) -> list[FetchableTopicResponse]:
    """Return the rows of a Fetch response with the refused partitions behind all others; a topic may have two rows."""
    rows = [(topic, row) for topic in topics for row in topic.partitions]
    ordered: list[FetchableTopicResponse] = []
    latest = None
    for topic, row in sorted(rows, key=lambda one: PLACE_IN_FETCH.get(one[1].error_code, 0)):
        if topic is not latest:
            ordered.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[]))
            latest = topic
        ordered[-1].partitions.append(row)
    return ordered
