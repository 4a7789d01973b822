"""GetTelemetrySubscriptions (key 71), v0, flexible from v0: the metrics that a client should push (KIP-714)."""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int8, Int16, Int32, Text, Uuid, always, message


@message
class GetTelemetrySubscriptionsRequest:
    client_instance_id: Uuid
    """All zeros: give me one."""


@message
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: list[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: Boolean
    requested_metrics: list[Text]
    """What their names begin with: nothing asked for is an empty list, everything `*`, or an empty text, in it."""
