"""SaslHandshake (key 17), v0-v1, never flexible."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Text


@dataclass(slots=True, kw_only=True)
class SaslHandshakeRequest:
    mechanism: Text


@dataclass(slots=True, kw_only=True)
class SaslHandshakeResponse:
    error_code: Int16
    mechanisms: list[Text]
