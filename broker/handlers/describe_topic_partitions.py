"""DescribeTopicPartitions: describe topics and their partitions, page by page (KIP-966).

Version 0. Topics are sorted by name. A response has at most the client's or the broker's limit of partitions; its
cursor marks the start of the next page. It contains the data of Metadata. It has no eligible leader
replicas, because a controller with ZooKeeper does not list them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.broker.dispatch.auth_helper import authorized_operations, is_authorized
from anabranch.broker.dispatch.request_context import INTERNAL_TOPICS, RequestContext, handles
from anabranch.broker.handlers.metadata import wait_for_brokers
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.topic_name import is_legal
from anabranch.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage, PartitionImage, TopicImage

PARTITIONS_MAX: Final = 2000
"""The limit of Kafka's brokers for one response."""


@handles(DescribeTopicPartitionsRequest, versions="0")
async def describe_topic_partitions(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Return the page that starts at the cursor."""
    await wait_for_brokers(ctx)
    image, cursor = ctx.services.metadata.image, request.cursor
    names = sorted({topic.name for topic in request.topics} or image.topics)
    if cursor is not None:
        if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
            return error_response(request)
        names = [name for name in names if name >= cursor.topic_name]
    left = max(min(request.response_partition_limit, PARTITIONS_MAX), 1)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    hidden: list[DescribeTopicPartitionsResponseTopic] = []
    following: Cursor | None = None
    turns = YieldBudget()
    for name in names:
        if not is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name):
            if request.topics:
                hidden.append(error_row(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if not left:
            following = Cursor(topic_name=name, partition_index=0)
            break
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        row, following = describe(image, name, first, left)
        row.topic_authorized_operations = authorized_operations(ctx, ResourceType.TOPIC, name)
        topics.append(row)
        left -= len(row.partitions)
        await turns.spend(1 + len(row.partitions))
        if following is not None:
            break
    return DescribeTopicPartitionsResponse(topics=[*topics, *hidden], next_cursor=following)


def describe(
    image: ClusterImage, name: str, first: int, count: int
) -> tuple[DescribeTopicPartitionsResponseTopic, Cursor | None]:
    """Return the row of a topic with at most `count` partitions, and a cursor if there are more."""
    topic = image.topics.get(name)
    if topic is None:
        known = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
        return error_row(name, known), None
    indexes = [index for index in sorted(topic.partitions) if index >= first]
    following = Cursor(topic_name=name, partition_index=indexes[count]) if len(indexes) > count else None
    return topic_row(image, topic, indexes[:count]), following


def topic_row(image: ClusterImage, topic: TopicImage, indexes: list[int]) -> DescribeTopicPartitionsResponseTopic:
    """Return the row of an existing topic."""
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[partition_row(image, topic.partitions[index]) for index in indexes],
    )


def partition_row(image: ClusterImage, partition: PartitionImage) -> DescribeTopicPartitionsResponsePartition:
    """Return the row of a partition."""
    live = image.brokers
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if partition.leader in live else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader if partition.leader in live else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[one for one in partition.replicas if one not in live or one in partition.offline_replicas],
    )


def error_row(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    """Return the row of a topic that is not described."""
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=ZERO_UUID, is_internal=name in INTERNAL_TOPICS, partitions=[]
    )


def error_response(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """Return the response to an invalid cursor."""
    names = [topic.name for topic in request.topics]
    return DescribeTopicPartitionsResponse(topics=[error_row(name, ErrorCode.INVALID_REQUEST) for name in names])
