"""ListOffsets: find the first or last offset, the first at a timestamp, or the one with the largest timestamp.

The "latest" offset is the end of what the client may read: the high watermark, or the last stable offset
(read_committed), or the log end offset (followers). A new leader whose high watermark is below its first own offset
answers OFFSET_NOT_AVAILABLE for it, and for a timestamp that it does not find below it. Versions 0 to 11. Without
tiered storage, the timestamps of v9 and v11 find nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from anabranch.broker.dispatch.auth_helper import authorize_client
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.refused_rows import unauthorized_last
from anabranch.broker.storage.segments import TimestampedOffset, first_of_unreadable, iter_search
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD, YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.records.batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from anabranch.broker.replication.partition import Partition

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
TIERED: Final = (LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
SINCE_VERSION: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
CONSUMER: Final = -1
DEBUG_CONSUMER: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


@handles(ListOffsetsRequest, versions="0-11")
async def list_offsets(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Find the offset of each partition separately."""
    times = Counter(
        (topic.name, requested.partition_index) for topic in request.topics for requested in topic.partitions
    )
    topics, turns = [], YieldBudget()
    once = ctx.services.profile.answers_like_a_quorum
    for topic in request.topics:
        rows = []
        await turns.spend()
        for requested in {one.partition_index: one for one in topic.partitions}.values() if once else topic.partitions:
            await turns.spend()
            try:
                authorize_client(ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
                if times[topic.name, requested.partition_index] > 1 and ctx.version > 0:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
                rows.append(await offset_of(ctx, request, topic.name, requested))
            except KafkaError as error:
                rows.append(
                    ListOffsetsPartitionResponse(partition_index=requested.partition_index, error_code=error.code)
                )
        if rows or not once:
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return ListOffsetsResponse(topics=unauthorized_last(topics))


async def offset_of(
    ctx: RequestContext, request: ListOffsetsRequest, topic: str, requested: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    """Return the row of one partition. Raises KafkaError."""
    partition = ctx.services.replicas.partition(topic, requested.partition_index)
    partition.check_epoch(requested.current_leader_epoch)
    if request.replica_id != DEBUG_CONSUMER:
        partition.check_leader()
    if requested.timestamp < EARLIEST_PENDING_UPLOAD or SINCE_VERSION.get(requested.timestamp, 0) > ctx.version:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"timestamp {requested.timestamp} has no meaning in v{ctx.version}"
        )
    if ctx.version == 0:
        starts = segment_starts(partition, requested, request.replica_id, ctx.services.now_ms())
        return ListOffsetsPartitionResponse(
            partition_index=requested.partition_index, error_code=0, old_style_offsets=starts
        )
    latest = latest_for(partition, request)
    is_final = request.replica_id != CONSUMER or is_caught_up(partition)
    if requested.timestamp == LATEST and not is_final:
        raise not_caught_up(partition, ctx.version)
    try:
        timestamp, offset, epoch = await find(ctx, partition, requested.timestamp, latest)
    except OSError as reason:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition!r}: {reason}") from reason
    if offset < 0 and requested.timestamp not in TIERED and not is_final:
        raise not_caught_up(partition, ctx.version)
    if request.replica_id == partition.leader_id and requested.timestamp == LATEST:
        # Only a controller uses the leader's own id, before it removes a partition; no marker may follow.
        partition.retiring = partition.sealed and partition.log.log_start_offset == offset
    return ListOffsetsPartitionResponse(
        partition_index=requested.partition_index, error_code=0, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def segment_starts(partition: Partition, requested: ListOffsetsPartition, replica_id: int, now_ms: int) -> list[int]:
    """Return the newest segment starts, or the log end, that are not after a time (v0).

    For a consumer the high watermark replaces all offsets beyond it.
    """
    log = partition.log
    starts = log.segments.starts(requested.timestamp, log.log_start_offset, log.log_end_offset, now_ms)
    del starts[max(0, requested.max_num_offsets) :]
    readable = partition.high_watermark
    if replica_id == CONSUMER and starts and starts[0] > readable:
        starts = [readable, *(start for start in starts if start <= readable)]
    return starts


def latest_for(partition: Partition, request: ListOffsetsRequest) -> int:
    """Return the end of what the client or follower may read."""
    if request.replica_id != CONSUMER:
        return partition.log.log_end_offset
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"isolation level {request.isolation_level}")
    return partition.last_stable_offset if request.isolation_level == READ_COMMITTED else partition.high_watermark


def is_caught_up(partition: Partition) -> bool:
    """Return whether the high watermark is not below committed offsets of earlier leaders (KIP-207)."""
    return partition.high_watermark >= partition.leader_epoch_start_offset


def not_caught_up(partition: Partition, version: int) -> KafkaError:
    """Return the error for an offset that may be higher, or that may be found, once the leader is caught up."""
    code = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    return KafkaError(code, f"{partition!r} has just been elected")


async def find(ctx: RequestContext, partition: Partition, timestamp: int, latest: int) -> tuple[int, int, int]:
    """Return timestamp, offset and leader epoch; -1 each if no readable record matches."""
    log = partition.log
    if timestamp == LATEST:
        return -1, latest, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, log.epochs.epoch_for(log.log_start_offset)
    if timestamp in TIERED:
        return -1, -1, -1
    if timestamp == MAX_TIMESTAMP:
        timestamp = log.max_timestamp_ms
        if timestamp == NO_TIMESTAMP:
            return -1, -1, -1
    found = await record_at(ctx, partition, timestamp)
    if found is None or found[1] >= latest:
        return -1, -1, -1
    return found


async def record_at(ctx: RequestContext, partition: Partition, timestamp_ms: int) -> TimestampedOffset | None:
    """Return the first record at or after a timestamp; long batches are searched in steps."""
    log, turns = partition.log, YieldBudget()
    removals = -1
    while removals != log.segments.removals:  # a removal may have moved the other segments
        removals, start_offset = log.segments.removals, log.log_start_offset
        for header, batch in log.segments.batches_with(timestamp_ms, start_offset):
            try:
                async with ctx.services.replicas.inspector.reader(batch, header) as reader:
                    for found in iter_search(reader, header, timestamp_ms, start_offset):
                        if found is not None:
                            return found
                        await turns.spend(ELEMENTS_PER_YIELD // 8)
            except DecodeError:
                return first_of_unreadable(header, start_offset)
            if removals != log.segments.removals:
                break
    return None
