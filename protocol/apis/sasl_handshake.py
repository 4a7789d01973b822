"""SaslHandshake (key 17), v0-v1, never flexible."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Text, message


@message
class SaslHandshakeRequest:
    mechanism: Text


@message
class SaslHandshakeResponse:
    error_code: Int16
    mechanisms: list[Text]
