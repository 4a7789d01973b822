"""ExpireDelegationToken (key 40), v0-v2, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, SecretBytes, always, message


@message
class ExpireDelegationTokenRequest:
    hmac: SecretBytes
    expiry_time_period_ms: Int64


@message
class ExpireDelegationTokenResponse:
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = always(absent=0)
