"""AlterUserScramCredentials (key 51), v0, flexible from v0."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Bytes, Int8, Int16, Int32, Text, always


@dataclass(slots=True, kw_only=True)
class ScramCredentialDeletion:
    name: Text
    mechanism: Int8


@dataclass(slots=True, kw_only=True)
class ScramCredentialUpsertion:
    name: Text
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsResult:
    user: Text
    error_code: Int16
    error_message: Text | None


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    results: list[AlterUserScramCredentialsResult]
