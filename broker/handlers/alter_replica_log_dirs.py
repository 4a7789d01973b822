"""AlterReplicaLogDirs: let replicas of this broker move to another of its directories (KIP-113).

Versions 0 to 2. The answer comes when a move has begun; DescribeLogDirs shows how far it is. A replica that is
elsewhere is answered REPLICA_NOT_AVAILABLE, one of a partition that does not exist UNKNOWN_TOPIC_OR_PARTITION; both
will be made where they were wanted.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(AlterReplicaLogDirsRequest, versions="0-2")
async def alter_replica_log_dirs(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Begin each move on its own."""
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    turns = YieldBudget()
    for asked in request.dirs:
        for topic in asked.topics:
            await turns.spend()
            for index in topic.partitions:
                await turns.spend()
                row = AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=begin(ctx, topic.name, index, asked.path)
                )
                topics.setdefault(topic.name, []).append(row)
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows) for name, rows in topics.items()]
    )


def begin(ctx: RequestContext, topic: str, index: int, path: str) -> ErrorCode:
    """Begin one move. Returns its error code."""
    replicas = ctx.services.replicas
    try:
        authorize(ctx, Operation.ALTER, ResourceType.CLUSTER)
        replicas.moves.ask(topic, index, path, replicas.replica(topic, index))
    except KafkaError as error:
        known = ctx.services.metadata.image.partition(topic, index) is not None
        if error.code is ErrorCode.REPLICA_NOT_AVAILABLE and not known:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return error.code
    return ErrorCode.NONE
