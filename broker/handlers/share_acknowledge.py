"""ShareAcknowledge: acknowledge records that a member has acquired (KIP-932).

Versions 1 to 2. Answered when the acknowledgements are stored; each partition has its own error. Source: Kafka's
`KafkaApis.handleShareAcknowledgeRequest`, `SharePartitionManager`.
"""

from __future__ import annotations

import asyncio

from anabranch.broker.coordinators.share_partitions.share_sessions import CLOSE_EPOCH, OPEN_EPOCH
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers import share_requests
from anabranch.broker.replication.leader_hints import HINTED, LeaderHints
from anabranch.protocol.apis.common_structs import LeaderIdAndEpoch
from anabranch.protocol.apis.share_acknowledge import (
    AcknowledgePartition,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(ShareAcknowledgeRequest, versions="1-2")
async def share_acknowledge(ctx: RequestContext, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    """Store the acknowledgements, partition by partition."""
    shares = ctx.services.shares
    try:
        group, member = share_requests.check_sender(ctx, request.group_id, request.member_id)
        if request.share_session_epoch == OPEN_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "only ShareFetch opens a share session.")
        session = shares.sessions.admit(group, member, request.share_session_epoch)
    except KafkaError as error:
        return ShareAcknowledgeResponse(
            error_code=error.code, error_message=error.message or None, responses=[], node_endpoints=[]
        )
    hints = LeaderHints(ctx.services.metadata)

    async def row_of(topic_id: bytes, one: AcknowledgePartition) -> PartitionData:
        row = PartitionData(
            partition_index=one.partition_index,
            error_code=ErrorCode.NONE,
            current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        )
        try:
            await acknowledge(ctx, group, member, topic_id, one, renews=request.is_renew_ack)
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message or None
            name = ctx.services.metadata.topic_name(topic_id)
            if error.code in HINTED and name is not None:
                row.current_leader = hints.leader_of(name, one.partition_index)
        return row

    given = [(topic.topic_id, one) for topic in request.topics for one in topic.partitions]
    rows = iter(await asyncio.gather(*(row_of(*one) for one in given)))  # no partition waits for another's coordinator
    topics = [
        ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=[next(rows) for _ in topic.partitions])
        for topic in request.topics
    ]
    if request.share_session_epoch == CLOSE_EPOCH:
        shares.end(session)
    return ShareAcknowledgeResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=shares.settings(group).lock_duration_ms,
        responses=topics,
        node_endpoints=hints.endpoints(ctx.peer.listener),
    )


async def acknowledge(
    ctx: RequestContext, group: str, member: str, topic_id: bytes, partition: AcknowledgePartition, *, renews: bool
) -> None:
    """Store the acknowledgements of one partition. Raises KafkaError."""
    acknowledgements = share_requests.acknowledgements_of(partition.acknowledgement_batches, renews=renews)
    if acknowledgements:
        await share_requests.store(ctx, group, member, topic_id, partition.partition_index, acknowledgements)
