"""DescribeQuorum: describe the controllers, the active one, and their progress (KIP-595).

Versions 0 to 2. There is no Raft log: a controller elected in ZooKeeper decides, and its controller epoch is the leader
epoch. The response describes a quorum of all brokers, with every voter caught up. Profiles before 4.0 do not have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.broker.administration.topic_creation import CLUSTER_METADATA
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage

CONTROLLER_LISTENER: Final = "CONTROLLER"
THERE: Final = (CLUSTER_METADATA, 0)


@handles(DescribeQuorumRequest, versions="0-2")
async def describe_quorum(ctx: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Answer from the metadata image and the controller's znode."""
    authorize(ctx, Operation.DESCRIBE, ResourceType.CLUSTER)
    services, image = ctx.services, ctx.services.metadata.image
    active = await services.controller_link.active()
    if active is None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "There is no active controller.")
    voters = sorted({*image.brokers, active.broker_id})
    offset = count_changes(image)
    topics = []
    for topic in request.topics:
        rows = []
        for partition in topic.partitions:
            if (topic.topic_name, partition.partition_index) != THERE:
                rows.append(missing(partition.partition_index))
                continue
            now_ms = services.now_ms()
            states = [
                ReplicaState(
                    replica_id=voter,
                    log_end_offset=offset,
                    last_fetch_timestamp=now_ms,
                    last_caught_up_timestamp=now_ms,
                )
                for voter in voters
            ]
            rows.append(
                PartitionData(
                    partition_index=0,
                    error_code=ErrorCode.NONE,
                    leader_id=active.broker_id,
                    leader_epoch=services.fence.controller_epoch,
                    high_watermark=offset,
                    current_voters=states,
                    observers=[],
                )
            )
        topics.append(TopicData(topic_name=topic.topic_name, partitions=rows))
    has_rows = any(row.error_code == ErrorCode.NONE for topic_row in topics for row in topic_row.partitions)
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE, error_message="", topics=topics, nodes=nodes_of(image, voters) if has_rows else []
    )


def count_changes(image: ClusterImage) -> int:
    """Return a count of metadata changes, in place of an offset of the metadata log."""
    partitions = (one for topic in image.topics.values() for one in topic.partitions.values())
    return 1 + len(image.brokers) + len(image.topics) + sum(1 + one.partition_epoch for one in partitions)


def missing(index: int) -> PartitionData:
    """Return the row of a partition other than that of the metadata."""
    return PartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message="This server does not host this topic-partition.",
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


def nodes_of(image: ClusterImage, voters: list[int]) -> list[Node]:
    """Return the addresses of the controllers that are brokers."""
    return [
        Node(
            node_id=voter,
            listeners=[Listener(name=CONTROLLER_LISTENER, host=broker.host, port=broker.port)],
        )
        for voter in voters
        if (broker := image.brokers.get(voter)) is not None
    ]
