"""DescribeDelegationToken (key 41), v0-v3, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, SecretBytes, Text, always, message, since


@message
class DescribeDelegationTokenOwner:
    principal_type: Text
    principal_name: Text


@message
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None


@message
class DescribedDelegationTokenRenewer:
    principal_type: Text
    principal_name: Text


@message
class DescribedDelegationToken:
    principal_type: Text
    principal_name: Text
    token_requester_principal_type: Text = since(3, absent="")
    token_requester_principal_name: Text = since(3, absent="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: Text
    hmac: SecretBytes
    renewers: list[DescribedDelegationTokenRenewer]


@message
class DescribeDelegationTokenResponse:
    error_code: Int16
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32 = always(absent=0)
