"""DescribeUserScramCredentials (key 50), v0, flexible from v0."""

from __future__ import annotations

from anabranch.protocol.wire import Int8, Int16, Int32, Text, always, message


@message
class UserName:
    name: Text


@message
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None


@message
class CredentialInfo:
    mechanism: Int8
    iterations: Int32


@message
class DescribeUserScramCredentialsResult:
    user: Text
    error_code: Int16
    error_message: Text | None
    credential_infos: list[CredentialInfo]


@message
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None
    results: list[DescribeUserScramCredentialsResult]
