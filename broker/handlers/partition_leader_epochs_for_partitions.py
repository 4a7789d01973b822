"""PartitionLeaderEpochsForPartitions: return the leader epochs at which resizes cut a partition (KIP-253 section 5).

v0 is exactly the KIP's: one epoch after creation and one before deletion. The first is -1 for a partition that no
resize created, the second for a live one. v1 adds an error per partition and the whole lineage. The response comes from
the metadata image, so R12 applies: it has a cut if and only if its generation is published.
"""

from __future__ import annotations

from functools import partial

from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.metadata.metadata_cache import ClusterImage, PartitionImage, TopicImage
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.partition_leader_epochs_for_partitions import (
    LineageEpoch,
    PartitionLeaderEpochsForPartitionsRequest,
    PartitionLeaderEpochsForPartitionsResponse,
    PartitionLeaderEpochsForPartitionsResponsePartition,
    PartitionLeaderEpochsForPartitionsResponseTopic,
)
from anabranch.protocol.errors import ErrorCode


@handles(PartitionLeaderEpochsForPartitionsRequest, versions="0-1")
async def partition_leader_epochs_for_partitions(
    ctx: RequestContext, request: PartitionLeaderEpochsForPartitionsRequest
) -> PartitionLeaderEpochsForPartitionsResponse:
    """Return the epochs of each partition separately."""
    image, turns = ctx.services.metadata.image, YieldBudget()
    return PartitionLeaderEpochsForPartitionsResponse(
        topics=[
            PartitionLeaderEpochsForPartitionsResponseTopic(
                topic=topic.topic,
                partitions=await turns.map(topic.partitions, partial(answer, ctx, image, topic.topic)),
            )
            for topic in request.topics
        ]
    )


def answer(
    ctx: RequestContext, image: ClusterImage, name: str, index: int
) -> PartitionLeaderEpochsForPartitionsResponsePartition:
    """Return the row of one partition."""
    if not is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name):
        return error_row(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return epochs_of(image.topics.get(name), index)


def error_row(index: int, code: ErrorCode) -> PartitionLeaderEpochsForPartitionsResponsePartition:
    """Return the row of a refused partition."""
    return PartitionLeaderEpochsForPartitionsResponsePartition(
        partition=index, leader_epoch_after_creation=-1, leader_epoch_before_deletion=-1, error_code=code
    )


def epochs_of(topic: TopicImage | None, index: int) -> PartitionLeaderEpochsForPartitionsResponsePartition:
    """Return the cuts of one partition."""
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        return error_row(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return PartitionLeaderEpochsForPartitionsResponsePartition(
        partition=index,
        leader_epoch_after_creation=_after_creation(topic, partition),
        leader_epoch_before_deletion=_before_deletion(partition),
        gen_start=[
            LineageEpoch(generation=generation, leader_epoch=epoch) for generation, epoch in partition.gen_start
        ],
    )


def _after_creation(topic: TopicImage, partition: PartitionImage) -> int:
    """Return the first epoch of a partition that a resize created; -1 for one as old as the topic."""
    if not partition.gen_start or not topic.history or partition.index < topic.history[0][1]:
        return -1
    return partition.gen_start[0][1]


def _before_deletion(partition: PartitionImage) -> int:
    """Return the last epoch in which a partition marked for deletion accepted records."""
    return partition.gen_start[-1][1] - 1 if partition.marked_for_deletion and partition.gen_start else -1
