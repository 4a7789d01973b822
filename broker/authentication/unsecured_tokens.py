"""Reads unsigned tokens (JWS with `alg: none`): Kafka's default for OAUTHBEARER, suitable for tests only."""

from __future__ import annotations

import base64
import json
from typing import Any, Final, NoReturn

from anabranch.broker.authentication.oauthbearer import BadToken, Bearer
from anabranch.protocol.values import value

_EPOCH_S_MAX: Final = 1 << 53


@value
class UnsecuredTokens:
    """The options of Kafka's unsecured validator, under shorter names."""

    user_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0

    def read(self, token: str, now_ms: int) -> Bearer:
        """Return the token's user and expiry. Raises BadToken."""
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            raise BadToken("not three parts with an empty signature")
        if _decode(parts[0]).get("alg") != "none":
            raise BadToken("a token whose alg is not none")
        claims = _decode(parts[1])
        user = claims.get(self.user_claim)
        if not isinstance(user, str) or not user.strip() or not _is_text(user):
            raise BadToken("no user")
        expires_ms = _milliseconds(claims, "exp")
        if expires_ms is None:
            raise BadToken("no expiry time")
        if now_ms - self.clock_skew_ms >= expires_ms:
            raise BadToken("expired")
        issued_ms = _milliseconds(claims, "iat")
        if issued_ms is not None and (issued_ms > now_ms + self.clock_skew_ms or issued_ms >= expires_ms):
            raise BadToken("issued in the future, or after its expiry")
        scope = claims.get(self.scope_claim)
        # a string is one scope, even with spaces, as in Kafka
        scopes = scope if isinstance(scope, list) else [scope]
        held = {one.strip() for one in scopes if isinstance(one, str)}
        if any(one not in held for one in self.required_scope):
            raise BadToken("the required scope is missing", self.required_scope)
        return Bearer(user, expires_ms)


def _decode(part: str) -> dict[str, Any]:
    try:
        raw = base64.b64decode(part + "=" * (-len(part) % 4), validate=True)
        found = json.loads(raw, parse_constant=_not_a_number)
    except (ValueError, RecursionError):
        raise BadToken("a part that is not JSON in base64") from None
    if not isinstance(found, dict):
        raise BadToken("a part that is not an object")
    return found


def _is_text(name: str) -> bool:
    """Whether the name is valid Unicode: JSON may contain half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _not_a_number(text: str) -> NoReturn:
    raise ValueError(text)


def _milliseconds(claims: dict[str, Any], name: str) -> int | None:
    """Return a time claim. An out-of-range time such as 1e999 would never expire; it is refused."""
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise BadToken("a time that is not a number")
    if abs(seconds) > _EPOCH_S_MAX:
        raise BadToken("a time out of range")
    return round(seconds * 1000)
