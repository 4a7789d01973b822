"""Authenticates a connection, and again before its session expires (KIP-368).

The last response of a login carries the session's lifetime. Java's clients reauthenticate after 85 to 95 % of it; here
after 85 %. Meanwhile the connection queues other requests: between the handshake and the last token a broker accepts
nothing else.
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
"""The part of a session's lifetime after which the connection reauthenticates."""


class AuthenticationFailed(ConnectionError):
    """The broker refuses the login, or is not the expected one; a retry does not help."""


async def log_in(security: Security, call: Callable[[Any], Awaitable[Any]]) -> float | None:
    """Log in. Returns the seconds until reauthentication; None: never. Raises AuthenticationFailed, ConnectionError."""
    mechanism = security.mechanism
    handshake = await call(SaslHandshakeRequest(mechanism=mechanism))
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise AuthenticationFailed(f"the broker does not support {mechanism}; it supports {offered}")
    if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed("this listener of the broker has no SASL: set security_protocol to PLAINTEXT or SSL")
    if handshake.error_code:
        raise AuthenticationFailed(f"the broker refused the login: {ErrorCode(handshake.error_code).name}")
    try:
        login = await asyncio.to_thread(security.login) if security.token_waits else security.login()
    except OSError:
        raise
    except Exception as error:  # whatever the application's source of tokens raises
        raise AuthenticationFailed(f"no token: {error!r}") from error
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
