"""A cluster that accepts client metrics, and a client that pushes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from anabranch.protocol.apis.push_telemetry import PushTelemetryRequest
from anabranch.protocol.wire import ZERO_UUID

TELEMETRY = {"client.telemetry.enable": "true"}


@contextlib.asynccontextmanager
async def client_of(
    cluster: Cluster, name: str = "rdkafka", *, client_id: str = "shop", at: int = 1
) -> AsyncIterator[Connection]:
    connection = await Connection.open(*cluster.address(at), client_id=client_id, software_name=name)
    try:
        yield connection
    finally:
        await connection.close()


async def get(client: Connection, uuid: bytes = ZERO_UUID) -> Any:
    return await client.call(GetTelemetrySubscriptionsRequest(client_instance_id=uuid))


def push_of(told: Any, metrics: bytes = b"OTLP", codec: int = 0, *, terminating: bool = False) -> PushTelemetryRequest:
    return PushTelemetryRequest(
        client_instance_id=told.client_instance_id,
        subscription_id=told.subscription_id,
        terminating=terminating,
        compression_type=codec,
        metrics=metrics,
    )
