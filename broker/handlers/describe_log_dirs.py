"""DescribeLogDirs: describe the logs in each directory of this broker, their sizes, lags and moves (KIP-113).

Versions 0 to 4; v3 adds an error for the whole response, v4 the total and usable bytes of the volume (KIP-827). A
directory that cannot be read has its own error.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.replication.replica_manager import ReplicaManager
    from anabranch.broker.storage.log import PartitionLog
    from anabranch.broker.storage.log_directory import LogDirectory

log: Final = logging.getLogger(__name__)
NO_LAG: Final = -1


@handles(DescribeLogDirsRequest, versions="0-4")
async def describe_log_dirs(ctx: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe each directory separately."""
    if not is_authorized(ctx, Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    replicas = ctx.services.replicas
    requested = None
    if request.topics is not None:
        requested = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics = await topics_by_directory(replicas, requested)
    return DescribeLogDirsResponse(
        error_code=ErrorCode.NONE,
        results=[describe_directory(one, topics.get(one.path, {})) for one in replicas.logs.directories],
    )


async def topics_by_directory(
    replicas: ReplicaManager, requested: set[tuple[str, int]] | None
) -> dict[str, dict[str, list[DescribeLogDirsPartition]]]:
    """Return the rows of the requested logs, or of all that are open at the start: by directory, by topic."""
    found: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {}
    turns = YieldBudget()
    for home, (topic, index), opened, is_future in list(replicas.logs.open_logs()):
        if requested is not None and (topic, index) not in requested:
            continue
        if turns.is_spent():
            await asyncio.sleep(0)
        row = DescribeLogDirsPartition(
            partition_index=index,
            partition_size=opened.size_bytes,
            offset_lag=lag_of(replicas.replica(topic, index), opened, is_future=is_future),
            is_future_key=is_future,
        )
        found.setdefault(home.path, {}).setdefault(topic, []).append(row)
    return found


def describe_directory(
    directory: LogDirectory, topics: dict[str, list[DescribeLogDirsPartition]]
) -> DescribeLogDirsResult:
    """Return one directory with these partitions."""
    try:
        total_bytes, usable_bytes = directory.files.space_bytes()
    except OSError as error:
        log.warning("cannot read the size of %s: %s", directory.path, error)
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[])
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def lag_of(partition: Partition | None, opened: PartitionLog, *, is_future: bool) -> int:
    """Return how many records a copy is behind its log, or a log behind the high watermark."""
    if partition is None:
        return NO_LAG
    if is_future:
        return partition.log.log_end_offset - opened.log_end_offset
    return max(partition.high_watermark - opened.log_end_offset, 0)
