"""CreateDelegationToken (key 38), v0-v3, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, SecretBytes, Text, always, message, since


@message
class CreatableRenewers:
    principal_type: Text
    principal_name: Text


@message
class CreateDelegationTokenRequest:
    owner_principal_type: Text | None = since(3, absent="")
    owner_principal_name: Text | None = since(3, absent="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64


@message
class CreateDelegationTokenResponse:
    error_code: Int16
    principal_type: Text
    principal_name: Text
    token_requester_principal_type: Text = since(3, absent="")
    token_requester_principal_name: Text = since(3, absent="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: Text
    hmac: SecretBytes
    throttle_time_ms: Int32 = always(absent=0)
