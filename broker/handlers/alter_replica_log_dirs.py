"""AlterReplicaLogDirs: move replicas of this broker between its log directories (KIP-113).

Versions 0 to 2. The response is sent when the moves have started; DescribeLogDirs shows their progress. A replica of
other brokers is REPLICA_NOT_AVAILABLE, one of a missing partition UNKNOWN_TOPIC_OR_PARTITION. If this broker later gets
such a replica, it creates it in the requested directory.
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
    """Start each move separately."""
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    turns = YieldBudget()
    for directory in request.dirs:
        for topic in directory.topics:
            await turns.spend()
            for index in topic.partitions:
                await turns.spend()
                row = AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=begin(ctx, topic.name, index, directory.path)
                )
                topics.setdefault(topic.name, []).append(row)
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows) for name, rows in topics.items()]
    )


def begin(ctx: RequestContext, topic: str, index: int, path: str) -> ErrorCode:
    """Start one move. Returns its error code."""
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
