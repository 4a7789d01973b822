"""Logs a connection in, and again before its session ends (KIP-368).

The broker says with the last answer of a login how long it is good. Java's clients log in again after 85 to 95 % of
that time; here after 85 %. Meanwhile the connection keeps back what it is given: between the handshake and the last
token a broker takes nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.clients.security import Security

REAUTHENTICATE_AFTER: Final = 0.85
"""Which part of a session goes by before the next login."""


class AuthenticationFailed(ConnectionError):
    """The broker does not let us in, or is not the one that it should be; trying again does not help."""


async def log_in(security: Security, call: Callable[[Any], Awaitable[Any]]) -> float | None:
    """Log in. Returns after how many seconds to do so again; None: never. Raises AuthenticationFailed,
    ConnectionError."""
    mechanism = security.mechanism
    handshake = await call(SaslHandshakeRequest(mechanism=mechanism))
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise AuthenticationFailed(f"the broker does not take {mechanism}; it takes {offered}")
    if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed("this listener of the broker wants no login: security_protocol is PLAINTEXT or SSL")
    if handshake.error_code:
        raise AuthenticationFailed(f"the broker refuses the login: {ErrorCode(handshake.error_code).name}")
    login = await asyncio.to_thread(security.login) if security.token_waits else security.login()
    token: bytes | None = login.first()
    lifetime_ms = 0
    while token is not None:
        answer = await call(SaslAuthenticateRequest(auth_bytes=token))
        if answer.error_code:
            reason = answer.error_message or ErrorCode(answer.error_code).name
            raise AuthenticationFailed(reason)
        lifetime_ms = answer.session_lifetime_ms
        try:
            token = login.step(answer.auth_bytes)
        except KafkaError as error:
            raise AuthenticationFailed(error.message) from None
    return lifetime_ms / 1000 * REAUTHENTICATE_AFTER if lifetime_ms > 0 else None
