"""SCRAM logins with delegation tokens: the token's id is the user name, its secret in base64 the password.

Credentials are derived at first use, and cached for up to `KEPT` tokens. Source:
`DelegationTokenManager.prepareScramCredentials`.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final

from anabranch.broker.authentication.scram_server import DIGESTS, Credential, TokenLogin
from anabranch.broker.credentials.scram_store import ITERATIONS_MIN, SALT_BYTES

if TYPE_CHECKING:
    from anabranch.broker.credentials.delegation_tokens import Tokens

KEPT: Final = 4096


def token_login(tokens: Tokens, mechanism: str, token_id: str) -> TokenLogin | None:
    """Return the credential and owner of a token; None for an unknown token."""
    token = tokens.find(token_id)
    if token is None:
        return None
    credential = _credential(mechanism, tokens.hmac_of(token_id))
    return TokenLogin(credential, token.owner.partition(":")[2], token.expires_ms)


@functools.lru_cache(maxsize=KEPT)
def _credential(mechanism: str, secret: bytes) -> Credential:
    digest, salt = DIGESTS[mechanism], secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(digest, base64.b64encode(secret), salt, ITERATIONS_MIN)
    stored_key = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
    return Credential(salt, stored_key, hmac.digest(salted, b"Server Key", digest), ITERATIONS_MIN)
