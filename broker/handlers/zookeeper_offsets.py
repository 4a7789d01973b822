"""OffsetCommit and OffsetFetch v0: offsets of consumers of 2013, stored in ZooKeeper, apart from those of groups.

Any broker answers, without a coordinator, a generation or an expiry. An offset that was never committed is
UNKNOWN_TOPIC_OR_PARTITION. Metadata is checked but not stored, as in Kafka. Imported with the first such request.
Source: `KafkaApis.commitOffsetsToZookeeper`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.broker.coordinators.groups.group_offsets import utf16_length
from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.controller.zk import paths
from anabranch.controller.zk.session import NodeExists, NoNode, ZkError
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.broker.dispatch.request_context import RequestContext
    from anabranch.protocol.apis.offset_commit import OffsetCommitRequestPartition
    from anabranch.protocol.apis.offset_fetch import OffsetFetchRequest


async def commit(
    ctx: RequestContext, group: str, topic: str, index: int, partition: OffsetCommitRequestPartition
) -> ErrorCode:
    """Write one offset; return its error code."""
    if utf16_length(partition.committed_metadata or "") > ctx.services.settings.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    if not _is_path(group):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    path, data = paths.consumer_offset(group, topic, index), b"%d" % partition.committed_offset
    session = ctx.services.session
    try:
        try:
            await session.set(path, data)
        except NoNode:
            try:
                await session.create(path, data, make_parents=True)
            except NodeExists:  # another consumer of the group created it
                await session.set(path, data)
    except ZkError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


async def fetch(ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Read each offset."""
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    await _fetch_one(ctx, request.group_id, topic.name, index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


async def _fetch_one(ctx: RequestContext, group: str, topic: str, index: int) -> OffsetFetchResponsePartition:
    offset, error = -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not is_authorized(ctx, Operation.DESCRIBE, ResourceType.GROUP, group):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif not is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif not _is_path(group):
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    elif ctx.services.metadata.partition(topic, index) is not None:
        try:
            data, _ = await ctx.services.session.get(paths.consumer_offset(group, topic, index))
            offset, error = int(data), ErrorCode.NONE
        except NoNode:
            pass
        except (ZkError, ValueError):
            error = ErrorCode.UNKNOWN_SERVER_ERROR
    return OffsetFetchResponsePartition(partition_index=index, committed_offset=offset, metadata="", error_code=error)


def _is_path(group: str) -> bool:
    """Return whether a group's name is valid in a path; in Kafka, ZooKeeper's client refuses others."""
    return group.isprintable() and not any(part in ("", ".", "..") for part in group.split("/"))
