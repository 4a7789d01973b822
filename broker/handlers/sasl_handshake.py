"""SaslHandshake: begin to authenticate (KIP-43, KIP-152).

Versions 0 and 1, the same bytes. Who has to log in does so at the gate of its listener
(`broker.authentication.sasl_authenticator`); what comes here is a handshake at the wrong time, and no mechanism is
named.
"""

from __future__ import annotations

from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from anabranch.protocol.errors import ErrorCode


@handles(SaslHandshakeRequest, versions="0-1")
async def sasl_handshake(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
