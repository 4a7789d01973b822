"""An issuer of signed tokens: its keys, their publication, and tokens with given claims."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

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
        """A token of alice that lives for a minute, with given claims; None omits a claim."""
        kept = {"sub": "alice", "iat": now_s, "exp": now_s + 60, **claims}
        told = {"kid": self.key_id} if self.key_id is not None else {}
        body = {name: one for name, one in kept.items() if one is not None}
        return jwt.encode(body, self._private, self.algorithm, headers={**told, **(headers or {})})


class TokenEndpoint:
    """Where clients get a token for their id and secret (RFC 6749, client credentials), by HTTP."""

    def __init__(self, issuer: Issuer, secrets: Mapping[str, str], **claims: Any) -> None:
        self.asked: list[dict[str, str]] = []
        """What was asked so far, as forms."""
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
                endpoint.asked.append(form)
                told = self.headers.get("Authorization", "").removeprefix("Basic ")
                user, _, secret = base64.b64decode(told).decode().partition(":")
                good = form.get("grant_type") == "client_credentials" and secrets.get(user) == secret
                token = issuer.token(time.time(), **{"sub": user, "exp": time.time() + 600, **claims})
                answer = {"access_token": token, "token_type": "bearer", "expires_in": 600} if good else {"error": "no"}
                content = json.dumps(answer).encode()
                self.send_response(200 if good else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def jwks(*issuers: Issuer) -> str:
    """What they publish."""
    return json.dumps({"keys": [one.public for one in issuers]})


def part(content: object) -> str:
    """A part of a token."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
