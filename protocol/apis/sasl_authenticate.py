"""SaslAuthenticate (key 36), v0-v2, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int64, SecretBytes, Text, message, since


@message
class SaslAuthenticateRequest:
    auth_bytes: SecretBytes


@message
class SaslAuthenticateResponse:
    error_code: Int16
    error_message: Text | None
    auth_bytes: SecretBytes
    session_lifetime_ms: Int64 = since(1, absent=0)
