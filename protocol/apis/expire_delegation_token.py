"""ExpireDelegationToken (key 40), v0-v2, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Bytes, Int16, Int32, Int64, always, message


@message
class ExpireDelegationTokenRequest:
    hmac: Bytes
    expiry_time_period_ms: Int64


@message
class ExpireDelegationTokenResponse:
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = always(absent=0)
