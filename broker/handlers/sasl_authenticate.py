"""SaslAuthenticate: the next step of an authentication (KIP-152, KIP-368).

Versions 0 to 2. Who has to log in does so at the gate of its listener (`broker.authentication.sasl_authenticator`);
what comes here comes from a client that counts as authenticated already.
"""

from __future__ import annotations

from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from anabranch.protocol.errors import ErrorCode


@handles(SaslAuthenticateRequest, versions="0-2")
async def sasl_authenticate(ctx: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Refuse."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
