"""The client side of SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, without I/O.

A login returns its first token and then the response to each of the broker's, until the end. The broker must prove that
it knows the password as well: SCRAM ends only with its signature. Passwords and tokens appear in no repr and in no
error message.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Final, Protocol

from anabranch.protocol.errors import ErrorCode, KafkaError

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 1 << 17
"""A higher count would let a malicious broker block the event loop of its clients."""

_BASE64: Final = r"[A-Za-z0-9+/]+={0,2}"
_CHALLENGE: Final = re.compile(
    rf"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,9}})(?:,.*)?", re.ASCII
)


class Login(Protocol):
    """The client's side of one authentication."""

    def first(self) -> bytes:
        """Return the first token."""

    def step(self, answer: bytes) -> bytes | None:
        """Return the response to the broker's token; None at the end. Raises KafkaError."""


class PlainLogin:
    """PLAIN (RFC 4616): name and password as they are."""

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        """Return name and password."""
        return self._token

    def step(self, answer: bytes) -> bytes | None:
        """End the login."""
        return None


class OAuthBearerLogin:
    """OAUTHBEARER (RFC 7628): a token from an issuer."""

    def __init__(self, token: str) -> None:
        self._token = token

    def first(self) -> bytes:
        """Return the token."""
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def step(self, answer: bytes) -> bytes | None:
        """Respond to the broker's error with the final message; the broker then sends its error text."""
        return b"\x01" if answer else None


class ScramLogin:
    """SCRAM (RFC 5802) as in Kafka's clients: without SASLprep of the password. `nonce` is fresh and printable."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str, *, by_token: bool = False) -> None:
        """Create a login; `by_token`: the user is the id of a delegation token, the password its secret in base64."""
        self._digest = DIGESTS[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._bare = (
            f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}{',tokenauth=true' if by_token else ''}"
        )
        self._verifier: bytes | None = None

    def first(self) -> bytes:
        """Return name and nonce."""
        return f"n,,{self._bare}".encode()

    def step(self, answer: bytes) -> bytes | None:
        """Return the proof, then check the broker's."""
        if self._verifier is None:
            return self._proof(answer.decode(errors="replace"))
        if not hmac.compare_digest(answer.partition(b",")[0], b"v=" + base64.b64encode(self._verifier)):
            raise _server_not_verified("its signature is wrong: it may not have the password")
        return None

    def _proof(self, challenge: str) -> bytes:
        match = _CHALLENGE.fullmatch(challenge)
        if match is None:
            raise _server_not_verified("its first message is not a SCRAM message")
        nonce, iterations = match["nonce"], int(match["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise _server_not_verified("its nonce does not begin with the client's")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise _server_not_verified(f"it requests {iterations} iterations, not {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        try:
            salt = base64.b64decode(match["salt"], validate=True)
        except ValueError:
            raise _server_not_verified("its salt is not base64") from None
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        server_key = hmac.digest(salted, b"Server Key", self._digest)
        unproved = f"c=biws,r={nonce}"
        signed = f"{self._bare},{challenge},{unproved}".encode()
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), signed, self._digest)
        self._verifier = hmac.digest(server_key, signed, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{unproved},p={base64.b64encode(proof).decode()}".encode()


def _server_not_verified(why: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"the broker failed to authenticate: {why}")
