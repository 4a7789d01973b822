"""PushTelemetry: receive metrics of a client, and forward them decompressed (KIP-714).

Version 0. The metrics are OTLP's MetricsData, which brokers do not parse.
"""

from __future__ import annotations

from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.get_telemetry_subscriptions import client_of
from anabranch.broker.telemetry.instances import Push
from anabranch.protocol.apis.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from anabranch.protocol.errors import ErrorCode


@handles(PushTelemetryRequest, versions="0")
async def push_telemetry(ctx: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Accept the push, or refuse it with a reason."""
    push = Push(
        client_instance_id=request.client_instance_id,
        subscription_id=request.subscription_id,
        terminating=request.terminating,
        compression=request.compression_type,
        metrics=request.metrics,
    )
    client = client_of(ctx, request.client_instance_id)
    await ctx.services.telemetry.push(push, client, ctx.services.settings.telemetry_max_bytes)
    return PushTelemetryResponse(error_code=ErrorCode.NONE)
