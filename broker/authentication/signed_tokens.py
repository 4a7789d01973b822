"""Validates signed tokens (JWS) with an issuer's public keys.

Only asymmetric algorithms are accepted. `none` would let anyone write tokens; a symmetric algorithm would let anyone
sign with the public key, if that key were used as a secret. Only the log contains the reason of a refusal, and no text
contains the token. Sources: `OAuthBearerValidatorCallbackHandler`, `BrokerJwtCallbackHandler` (KIP-768).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import jwt
from jwt import PyJWK, PyJWKSet

from anabranch.broker.authentication.oauthbearer import BadToken, Bearer
from anabranch.protocol.values import value

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
TOKEN_CHARACTERS_MAX: Final = 1 << 16
_EPOCH_S_MAX: Final = 1 << 53


def keys_in(text: str) -> tuple[PyJWK, ...]:
    """Return the public keys of a JWKS document that can verify accepted algorithms. Raises ValueError."""
    try:
        found = PyJWKSet.from_json(text).keys
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ValueError(f"not a JWKS with a usable key: {error}") from None
    kept = tuple(key for key in found if key.algorithm_name in ALGORITHMS and key.public_key_use in (None, "sig"))
    if not kept:
        raise ValueError(f"a JWKS without a key for any of {', '.join(ALGORITHMS)}")
    return kept


@value
class SignedTokens:
    """The requirements on a signed token: Kafka's properties under shorter names."""

    keys: Callable[[], tuple[PyJWK, ...]]
    """Returns the issuer's current keys."""
    on_unknown_key: Callable[[str], None]
    """Called with the id of an unknown key that a token names."""
    issuer: str = ""
    """The expected issuer; empty: any."""
    audiences: tuple[str, ...] = ()
    """The accepted audiences. Empty: only tokens without an audience are accepted."""
    user_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_ms: int = 30_000

    def read(self, token: str, now_ms: int) -> Bearer:
        """Return the token's user and expiry. Raises BadToken."""
        claims = self._verify(token)
        self._check_addressee(claims)
        expires_ms = self._check_time(claims, now_ms)
        user = claims.get(self.user_claim)
        if not isinstance(user, str) or not user.strip() or not user.isprintable():
            raise BadToken(f"no user in {self.user_claim}")
        scope = claims.get(self.scope_claim)
        scopes = scope if isinstance(scope, list) else [scope] if isinstance(scope, str) else []
        if not all(isinstance(one, str) and one.strip() for one in scopes) or len(set(scopes)) < len(scopes):
            raise BadToken(f"{self.scope_claim} is not a list of distinct strings")
        return Bearer(user, expires_ms)

    def _verify(self, token: str) -> Mapping[str, Any]:
        """Verify a token's signature, and return its claims."""
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise BadToken(f"more than {TOKEN_CHARACTERS_MAX} characters")
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if algorithm not in ALGORITHMS:
                raise BadToken(f"unsupported algorithm {str(algorithm)[:20]!r}")
            for key in self._candidates(algorithm, key_id):
                try:
                    claims = json.loads(jwt.api_jws.decode(token, key, algorithms=[algorithm]))
                except jwt.InvalidSignatureError:
                    continue
                if not isinstance(claims, dict):
                    raise BadToken("claims that are not an object")
                return claims
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise BadToken(f"not a signed token ({type(error).__name__})") from None
        raise BadToken("a signature that no key of the issuer verifies")

    def _candidates(self, algorithm: str, key_id: object) -> list[PyJWK]:
        fitting = [key for key in self.keys() if key.algorithm_name == algorithm]
        if key_id is None:
            return fitting
        named = [key for key in fitting if key.key_id == key_id]
        if not named:
            self.on_unknown_key(str(key_id)[:100])
        return named

    def _check_addressee(self, claims: Mapping[str, Any]) -> None:
        if self.issuer and claims.get("iss") != self.issuer:
            raise BadToken("another issuer")
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [] if audience is None else [audience]
        if bool(audiences) != bool(self.audiences) or (
            audiences and not any(one in self.audiences for one in audiences)
        ):
            raise BadToken("for another audience")

    def _check_time(self, claims: Mapping[str, Any], now_ms: int) -> int:
        """Return the token's expiry. Raises BadToken if it has expired or is not valid yet."""
        times = {name: _milliseconds(claims, name) for name in ("exp", "iat", "nbf")}
        expires_ms, issued_ms, begins_ms = times["exp"], times["iat"], times["nbf"]
        if expires_ms is None or issued_ms is None:
            raise BadToken("no expiry or issue time")
        if expires_ms < max(issued_ms, begins_ms or issued_ms):
            raise BadToken("an expiry before its issue or not-before time")
        if now_ms - self.clock_skew_ms >= expires_ms:
            raise BadToken("expired")
        if begins_ms is not None and now_ms + self.clock_skew_ms < begins_ms:
            raise BadToken("not valid yet")
        return expires_ms


def _milliseconds(claims: Mapping[str, Any], name: str) -> int | None:
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not abs(seconds) <= _EPOCH_S_MAX:
        raise BadToken(f"{name} is not a time")
    return round(seconds * 1000)
