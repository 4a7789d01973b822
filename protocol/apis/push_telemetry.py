"""PushTelemetry (key 72), v0, flexible from v0: a client's own metrics, as OpenTelemetry encodes them (KIP-714)."""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Bytes, Int8, Int16, Int32, Uuid, always, message


@message
class PushTelemetryRequest:
    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Boolean
    compression_type: Int8
    metrics: Bytes


@message
class PushTelemetryResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
