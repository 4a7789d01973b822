"""SaslAuthenticate: continue an authentication (KIP-152, KIP-368).

Versions 0 to 2. Listeners with SASL process it in `broker.authentication.sasl_authenticator`. Here it comes from a
client that needs no further authentication.
"""

from __future__ import annotations

from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from anabranch.protocol.errors import ErrorCode


@handles(SaslAuthenticateRequest, versions="0-2")
async def sasl_authenticate(ctx: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Refuse with ILLEGAL_SASL_STATE."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
