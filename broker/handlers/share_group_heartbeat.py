"""ShareGroupHeartbeat: join a share group, stay in it, or leave it (KIP-932).

Version 1. A node without share groups answers UNSUPPORTED_VERSION, like Kafka's brokers with share.version 0. The first
member's heartbeat creates `__share_group_state`.
"""

from __future__ import annotations

from anabranch.broker.coordinators.consumer_groups.assignment import to_rows
from anabranch.broker.coordinators.consumer_groups.heartbeat import Sender
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.find_coordinator import create_internal_topic
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.consumer_group_heartbeat import Assignment, TopicPartitions
from anabranch.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import SHARE_STATE_TOPIC


@handles(ShareGroupHeartbeatRequest, versions="1")
async def share_group_heartbeat(
    ctx: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Process the heartbeat of a member."""
    services = ctx.services
    try:
        if not services.has_share_groups:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        authorize(ctx, Operation.READ, ResourceType.GROUP, request.group_id)
        for name in request.subscribed_topic_names or ():
            authorize(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name)
        if SHARE_STATE_TOPIC not in services.metadata.image.topics:
            await create_internal_topic(services, SHARE_STATE_TOPIC)
        sender = Sender(client_id=ctx.client_id, client_host=f"/{ctx.peer.host}")
        answer = await services.groups.sharers.heartbeat(request, sender)
    except KafkaError as refused:
        return ShareGroupHeartbeatResponse(
            error_code=refused.code, error_message=refused.message or None, member_epoch=0, heartbeat_interval_ms=0
        )
    rows = None if answer.assignment is None else to_rows(answer.assignment)
    return ShareGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.interval_ms,
        assignment=None
        if rows is None
        else Assignment(
            topic_partitions=[TopicPartitions(topic_id=row.topic_id, partitions=row.partitions) for row in rows]
        ),
    )
