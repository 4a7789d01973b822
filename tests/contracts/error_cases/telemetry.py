"""Refusals of clients that push metrics (KIP-714)."""

from __future__ import annotations

import uuid
from typing import Any

from anabranch.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from anabranch.protocol.apis.push_telemetry import PushTelemetryRequest
from anabranch.protocol.errors import ErrorCode
from tests.contracts.error_codes import World, case

ON = {"kafka_version": "4.1", "client_telemetry_enable": "true", "telemetry_max_bytes": "100"}


async def push(world: World, *, unknown: int = 0, metrics: bytes = b"OTLP", codec: int = 0) -> Any:
    """Push like a new client, for a subscription id with this difference."""
    at = min(world.cluster.nodes)
    client = uuid.uuid5(uuid.NAMESPACE_URL, world.fresh()).bytes
    response = await world.call(GetTelemetrySubscriptionsRequest(client_instance_id=client), at=at)
    request = PushTelemetryRequest(
        client_instance_id=client,
        subscription_id=response.subscription_id ^ unknown,
        terminating=False,
        compression_type=codec,
        metrics=metrics,
    )
    return await world.call(request, at=at)


@case(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, **ON)
async def push_with_another_subscription_id(world: World) -> Any:
    """PushTelemetry for what the client is not asked for, or not any more."""
    return await push(world, unknown=1)


@case(ErrorCode.TELEMETRY_TOO_LARGE, **ON)
async def push_above_the_maximum(world: World) -> Any:
    """PushTelemetry of more than telemetry.max.bytes."""
    return await push(world, metrics=bytes(101))


@case(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, **ON)
async def push_with_an_unknown_compression(world: World) -> Any:
    """PushTelemetry in a compression that there is not."""
    return await push(world, codec=9)


@case(ErrorCode.INVALID_RECORD, **ON)
async def push_malformed_compressed_bytes(world: World) -> Any:
    """PushTelemetry of bytes in another compression than declared."""
    return await push(world, codec=4)


@case(ErrorCode.THROTTLING_QUOTA_EXCEEDED, **ON)
async def get_subscriptions_too_early(world: World) -> Any:
    """GetTelemetrySubscriptions twice within one interval."""
    at, client = min(world.cluster.nodes), uuid.uuid5(uuid.NAMESPACE_URL, world.fresh()).bytes
    for _ in range(2):
        answer = await world.call(GetTelemetrySubscriptionsRequest(client_instance_id=client), at=at)
    return answer


@case(ErrorCode.INVALID_REQUEST, **ON)
async def push_without_a_client_id(world: World) -> Any:
    """PushTelemetry of a client that has no id."""
    request = PushTelemetryRequest(
        client_instance_id=bytes(16), subscription_id=0, terminating=False, compression_type=0, metrics=b""
    )
    return await world.call(request, at=min(world.cluster.nodes))
