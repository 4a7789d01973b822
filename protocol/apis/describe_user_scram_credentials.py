"""DescribeUserScramCredentials (key 50), v0, flexible from v0."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int8, Int16, Int32, Text, always


@dataclass(slots=True, kw_only=True)
class UserName:
    name: Text


@dataclass(slots=True, kw_only=True)
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None


@dataclass(slots=True, kw_only=True)
class CredentialInfo:
    mechanism: Int8
    iterations: Int32


@dataclass(slots=True, kw_only=True)
class DescribeUserScramCredentialsResult:
    user: Text
    error_code: Int16
    error_message: Text | None
    credential_infos: list[CredentialInfo]


@dataclass(slots=True, kw_only=True)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None
    results: list[DescribeUserScramCredentialsResult]
