"""ConsumerGroupHeartbeat: be a member of a group whose broker assigns (KIP-848).

Version 0. Kafka's brokers with ZooKeeper advertise this and have no coordinator for it: UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from anabranch.broker.api import RequestContext, handles
from anabranch.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from anabranch.protocol.errors import ErrorCode


@handles(ConsumerGroupHeartbeatRequest, versions="0")
async def consumer_group_heartbeat(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Refuse."""
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, member_epoch=0, heartbeat_interval_ms=0
    )
