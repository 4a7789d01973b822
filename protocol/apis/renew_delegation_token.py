"""RenewDelegationToken (key 39), v0-v2, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, SecretBytes, always, message


@message
class RenewDelegationTokenRequest:
    hmac: SecretBytes
    renew_period_ms: Int64


@message
class RenewDelegationTokenResponse:
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = always(absent=0)
