"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the server side, as in Kafka's broker.

    client  n,,n=<name>,r=<nonce>
    server  r=<nonce><more of it>,s=<salt>,i=<iterations>
    client  c=<channel binding>,r=<whole nonce>,p=<proof>
    server  v=<signature>

The signed text is rebuilt from the parts of the first message, without a reserved extension (`m=`). The client must
return the whole nonce; otherwise a recorded message could be replayed (CVE-2024-56128). As in Kafka, other text may
precede the nonce: librdkafka before 2.6.1 repeats its own part. Unlike the RFC, the server never sends `e=`, does not
normalize passwords, and refuses an unknown user at once.

The formulas use the standard library's `hmac`. SCRAM libraries answer `e=`, accept channel bindings that Kafka
refuses, and sign the first message as it was sent.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from anabranch.broker.authentication.sasl_exchange import SaslProtocolError, SaslRefused, Step
from anabranch.broker.credentials.scram_store import ITERATIONS_MIN
from anabranch.protocol.values import value

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"
_BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<acts_for>{_NAME}))?,(?:m=[\x01-\x2b\x2d-\x7f]+,)?"
    rf"n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS})"
)
_FINAL: Final = re.compile(rf"c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS},p=(?P<proof>{_BASE64})")
_PARTS: Final = {"salt", "stored_key", "server_key", "iterations"}


@dataclass(frozen=True, slots=True)
class Credential:
    """A stored SCRAM credential. Not a `value`, because its fields must never be printed."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def parse(cls, stored: str) -> Credential:
        """Parse a credential of a user's configuration. Raises ValueError, which does not quote it."""
        try:
            named = [part.partition("=")[::2] for part in stored.split(",")]
            parts = dict(named)
            if len(named) != len(_PARTS) or parts.keys() != _PARTS:
                raise ValueError
            salt, stored_key, server_key = (
                base64.b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            iterations = int(parts["iterations"])
        except (ValueError, binascii.Error):
            raise ValueError("Credentials not valid") from None
        return cls(salt, stored_key, server_key, iterations)


@value
class TokenLogin:
    """The credential of a delegation token, and the user it authenticates."""

    credential: Credential
    user: str
    expires_ms: int


class ScramServer:
    """One SCRAM exchange. `credential_of` finds users' credentials; `nonce` is fresh, unguessable and printable.

    `token_of` finds delegation tokens by id; None if the node has none.
    """

    def __init__(
        self,
        mechanism: str,
        credential_of: Callable[[str], Credential | None],
        nonce: str,
        token_of: Callable[[str], TokenLogin | None] | None = None,
    ) -> None:
        self._digest = DIGESTS[mechanism]
        self._credential_of = credential_of
        self._token_of = token_of
        self._token: TokenLogin | None = None
        self._nonce = nonce
        self._user = ""
        self._credential: Credential | None = None
        self._first_messages = ""
        self._over = False

    def step(self, token: bytes, now_ms: int) -> Step:
        """Process the client's first or final message."""
        if self._over:
            raise SaslProtocolError("a token after the end of SCRAM")
        self._over = True
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise SaslRefused("a SCRAM message that is not text") from None
        if self._credential is not None:
            return self._final(self._credential, text)
        answer = self._first(text)
        self._over = False
        return answer

    def _first(self, text: str) -> Step:
        parsed = _FIRST.fullmatch(text)
        if parsed is None:
            raise SaslRefused("an invalid first message of SCRAM")
        user = _unquote(parsed["name"])
        if parsed["acts_for"] is not None and _unquote(parsed["acts_for"]) != user:
            problem = "Authentication failed: Client requested an authorization id that is different from username"
            raise SaslRefused(problem, problem)
        if re.search(r",tokenauth=true(?:,|$)", parsed["extensions"], re.IGNORECASE):
            self._token = None if self._token_of is None else self._token_of(user)
            if self._token is None:
                raise SaslRefused("an unknown delegation token")
        credential = self._credential_of(user) if self._token is None else self._token.credential
        if credential is None:
            raise SaslRefused("an unknown user")
        if credential.iterations < ITERATIONS_MIN:
            raise SaslRefused(f"a stored credential with less than {ITERATIONS_MIN} iterations")
        self._user, self._credential = user, credential
        self._nonce = parsed["nonce"] + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._first_messages = f"n={parsed['name']},r={parsed['nonce']}{parsed['extensions']},{answer}"
        return Step(answer.encode())

    def _final(self, credential: Credential, text: str) -> Step:
        parsed = _FINAL.fullmatch(text)
        if parsed is None:
            raise SaslRefused("an invalid final message of SCRAM")
        if not hmac.compare_digest(parsed["nonce"][-len(self._nonce) :], self._nonce):
            raise SaslRefused("Invalid client nonce in the final client message.")
        signed = f"{self._first_messages},c={parsed['binding']},r={parsed['nonce']}".encode()
        proof = base64.b64decode(parsed["proof"])
        signature = hmac.digest(credential.stored_key, signed, self._digest)
        if len(proof) != len(signature):
            raise SaslProtocolError("a proof of SCRAM that has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), credential.stored_key):
            raise SaslRefused("a wrong password")
        verifier = hmac.digest(credential.server_key, signed, self._digest)
        final_message = b"v=" + base64.b64encode(verifier)
        if self._token is not None:
            return Step(final_message, self._token.user, self._token.expires_ms, by_token=True)
        return Step(final_message, self._user)


def _unquote(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
