"""SaslHandshake: start an authentication (KIP-43, KIP-152).

Versions 0 and 1, with equal bytes. Listeners with SASL process it in `broker.authentication.sasl_authenticator`. Here
it arrives at the wrong time, and the response names no mechanism.
"""

from __future__ import annotations

from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from anabranch.protocol.errors import ErrorCode


@handles(SaslHandshakeRequest, versions="0-1")
async def sasl_handshake(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse with ILLEGAL_SASL_STATE."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
