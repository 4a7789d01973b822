"""AlterUserScramCredentials (key 51), v0, flexible from v0."""

from __future__ import annotations

from anabranch.protocol.wire import Bytes, Int8, Int16, Int32, SecretBytes, Text, always, message


@message
class ScramCredentialDeletion:
    name: Text
    mechanism: Int8


@message
class ScramCredentialUpsertion:
    name: Text
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: SecretBytes


@message
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@message
class AlterUserScramCredentialsResult:
    user: Text
    error_code: Int16
    error_message: Text | None


@message
class AlterUserScramCredentialsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    results: list[AlterUserScramCredentialsResult]
