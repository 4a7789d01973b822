"""ConsumerGroupHeartbeat: join a consumer group, stay in it, or leave it (KIP-848).

Versions 0 to 1. A node whose profile or settings exclude consumer groups answers UNSUPPORTED_VERSION, as Kafka's
brokers with ZooKeeper do. A named topic that the client may not describe makes the whole request fail.
"""

from __future__ import annotations

from anabranch.broker.coordinators.consumer_groups.heartbeat import Sender
from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(ConsumerGroupHeartbeatRequest, versions="0-1")
async def consumer_group_heartbeat(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Process the heartbeat of a member."""
    try:
        if not ctx.services.has_consumer_groups:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        authorize(ctx, Operation.READ, ResourceType.GROUP, request.group_id)
        for name in request.subscribed_topic_names or ():
            authorize(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name)
        return await ctx.services.groups.consumers.heartbeat(
            request,
            version=ctx.version,
            sender=Sender(client_id=ctx.client_id, client_host=f"/{ctx.peer.host}"),
            may_describe=lambda name: is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name),
        )
    except KafkaError as refused:
        return ConsumerGroupHeartbeatResponse(
            error_code=refused.code,
            error_message=refused.message or None,
            member_epoch=0,
            heartbeat_interval_ms=0,
        )
