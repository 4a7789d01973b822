"""Envelope (key 58), v0, flexible from v0."""

from __future__ import annotations

from anabranch.protocol.wire import Bytes, Int16, always, message


@message
class EnvelopeRequest:
    request_data: Bytes
    request_principal: Bytes | None
    client_host_address: Bytes


@message
class EnvelopeResponse:
    response_data: Bytes | None = always(absent=None)
    error_code: Int16
