"""An issuer of signed tokens: its keys, what it publishes of them, and tokens as it is told to write them."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

NAME = "https://issuer.example"


class Issuer:
    """One key of a kind, under an id."""

    def __init__(self, algorithm: str = "ES256", key_id: str | None = "one") -> None:
        self.algorithm, self.key_id = algorithm, key_id
        self._private: Any
        if algorithm == "ES256":
            self._private = ec.generate_private_key(ec.SECP256R1())
        elif algorithm == "EdDSA":
            self._private = ed25519.Ed25519PrivateKey.generate()
        else:
            self._private = rsa.generate_private_key(65537, 2048)

    @property
    def public(self) -> dict[str, Any]:
        """The key as a JWKS has it."""
        told: Any = jwt.algorithms.get_default_algorithms()[self.algorithm]
        key = json.loads(told.to_jwk(self._private.public_key()))
        return {**key, "alg": self.algorithm, "use": "sig", **({} if self.key_id is None else {"kid": self.key_id})}

    def token(self, now_s: float, *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token of alice that lives for a minute, but for what is said; None leaves a claim out."""
        kept = {"sub": "alice", "iat": now_s, "exp": now_s + 60, **claims}
        told = {"kid": self.key_id} if self.key_id is not None else {}
        body = {name: one for name, one in kept.items() if one is not None}
        return jwt.encode(body, self._private, self.algorithm, headers={**told, **(headers or {})})


def jwks(*issuers: Issuer) -> str:
    """What they publish."""
    return json.dumps({"keys": [one.public for one in issuers]})


def part(content: object) -> str:
    """A part of a token."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
