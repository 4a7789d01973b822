"""ExpireDelegationToken (key 40), v0-v2, flexible from v2."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Bytes, Int16, Int32, Int64, always


@dataclass(slots=True, kw_only=True)
class ExpireDelegationTokenRequest:
    hmac: Bytes
    expiry_time_period_ms: Int64


@dataclass(slots=True, kw_only=True)
class ExpireDelegationTokenResponse:
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = always(absent=0)
