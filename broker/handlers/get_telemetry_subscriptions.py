"""GetTelemetrySubscriptions: return the metrics that a client should push, and the interval (KIP-714).

Version 0. A client without an id gets one. It sends the request once per interval, and after its subscription changed.
"""

from __future__ import annotations

from anabranch.broker.administration.topic_creation import fresh_uuid
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.telemetry.instances import COMPRESSIONS
from anabranch.broker.telemetry.subscriptions import Client
from anabranch.controller.zk.znodes import uuid_to_text
from anabranch.protocol.apis.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.wire import ZERO_UUID

UNKNOWN = "unknown"


@handles(GetTelemetrySubscriptionsRequest, versions="0")
async def get_telemetry_subscriptions(
    ctx: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Return the subscription of the client."""
    telemetry = ctx.services.telemetry
    own_id = request.client_instance_id
    client_instance_id = fresh_uuid(ctx.services.rng) if own_id == ZERO_UUID else own_id
    instance = telemetry.get(client_instance_id, client_of(ctx, client_instance_id))
    return GetTelemetrySubscriptionsResponse(
        error_code=ErrorCode.NONE,
        client_instance_id=client_instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(COMPRESSIONS),
        push_interval_ms=instance.subscription.interval_ms,
        telemetry_max_bytes=ctx.services.settings.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.subscription.metrics),
    )


def client_of(ctx: RequestContext, client_instance_id: bytes) -> Client:
    """Return the sender of a request as subscriptions match it."""
    return Client(
        client_instance_id=uuid_to_text(client_instance_id),
        client_id=ctx.client_id,
        software_name=ctx.peer.software_name or UNKNOWN,
        software_version=ctx.peer.software_version or UNKNOWN,
        host=ctx.peer.host,
        port=ctx.peer.port,
    )
