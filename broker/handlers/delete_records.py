"""DeleteRecords: raise the log start offset of partitions, and answer when every live replica has it (KIP-107).

The leader raises its log start offset at once. Followers adopt it with their next fetch, and report it with the one
after. The low watermark in the response is the log start offset that all of them have reached. Compacted topics delete
by key, and internal topics are refused. Versions 0 to 2.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import INTERNAL_TOPICS, RequestContext, handles
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.replication.replica_manager import ReplicaManager

NO_LOW_WATERMARK = -1
WAITS_AT_ONCE: Final = 500
"""The partitions whose followers a request waits for together: a millisecond of work at the start and at the end."""


class DelayedDeleteRecords:
    """A partition that waits for its followers, with its current row of the response."""

    __slots__ = ("partition", "required_offset", "row")

    def __init__(self, partition: Partition, required_offset: int, row: DeleteRecordsPartitionResult) -> None:
        self.partition = partition
        self.required_offset = required_offset
        self.row = row

    def is_complete(self) -> bool:
        """Return whether all live followers have deleted; until then the row has REQUEST_TIMED_OUT."""
        if not self.partition.is_leader:
            self.row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self.row.low_watermark = NO_LOW_WATERMARK
            return True
        self.row.low_watermark = self.partition.low_watermark
        if self.row.low_watermark < self.required_offset:
            self.row.error_code = ErrorCode.REQUEST_TIMED_OUT
            return False
        self.row.error_code = ErrorCode.NONE
        return True


@handles(DeleteRecordsRequest, versions="0-2")
async def delete_records(ctx: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete in this broker's partitions, then wait for their followers."""
    replicas = ctx.services.replicas
    waits: list[DelayedDeleteRecords] = []
    turns = YieldBudget()
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=await turns.map(topic.partitions, partial(delete, ctx, topic.name, waits)),
        )
        for topic in request.topics
    ]
    deadline_ms = replicas.now_ms() + request.timeout_ms
    for first in range(0, len(waits), WAITS_AT_ONCE):
        await turns.spend(WAITS_AT_ONCE if first else 1)
        await wait_deleted(replicas, waits[first : first + WAITS_AT_ONCE], deadline_ms - replicas.now_ms())
    return DeleteRecordsResponse(topics=topics)


def delete(
    ctx: RequestContext, topic: str, waits: list[DelayedDeleteRecords], requested: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    """Return the row of one partition; add it to `waits` unless it was refused."""
    row = DeleteRecordsPartitionResult(
        partition_index=requested.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=ErrorCode.NONE
    )
    try:
        authorize(ctx, Operation.DELETE, ResourceType.TOPIC, topic)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        partition = ctx.services.replicas.leader_of(topic, requested.partition_index)
        waits.append(DelayedDeleteRecords(partition, partition.delete_records_before(requested.offset), row))
    except KafkaError as error:
        row.error_code = error.code
    return row


async def wait_deleted(replicas: ReplicaManager, waits: list[DelayedDeleteRecords], timeout_ms: float) -> None:
    """Wait until all are complete or the timeout expires."""
    waiting: dict[Partition, list[DelayedDeleteRecords]] = {}
    for wait in waits:
        if not wait.is_complete():
            waiting.setdefault(wait.partition, []).append(wait)
    if not waiting or timeout_ms <= 0:
        return

    def ready(changed: Partition) -> bool:
        left = [wait for wait in waiting.pop(changed, ()) if not wait.is_complete()]
        if left:
            waiting[changed] = left
        return not waiting

    await replicas.rooms.wait(replicas.deletions, tuple(waiting), timeout_ms, ready)
