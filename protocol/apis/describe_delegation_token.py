"""DescribeDelegationToken (key 41), v0-v3, flexible from v2."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Bytes, Int16, Int32, Int64, Text, always, since


@dataclass(slots=True, kw_only=True)
class DescribeDelegationTokenOwner:
    principal_type: Text
    principal_name: Text


@dataclass(slots=True, kw_only=True)
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None


@dataclass(slots=True, kw_only=True)
class DescribedDelegationTokenRenewer:
    principal_type: Text
    principal_name: Text


@dataclass(slots=True, kw_only=True)
class DescribedDelegationToken:
    principal_type: Text
    principal_name: Text
    token_requester_principal_type: Text = since(3, absent="")
    token_requester_principal_name: Text = since(3, absent="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: Text
    hmac: Bytes
    renewers: list[DescribedDelegationTokenRenewer]


@dataclass(slots=True, kw_only=True)
class DescribeDelegationTokenResponse:
    error_code: Int16
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32 = always(absent=0)
