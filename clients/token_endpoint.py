"""Fetches tokens from an issuer by HTTP, with client credentials (RFC 6749 4.4, KIP-768).

A token is reused for four fifths of its lifetime, which spares a request per connection. A request blocks a thread;
`log_in` knows this by `Security.token_waits`. The secret and the token are in no repr and in no error message. Source:
`HttpAccessTokenRetriever`.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Final

from anabranch.clients.authentication import AuthenticationFailed
from anabranch.clients.http_documents import HttpDocument

KEPT_FOR: Final = 0.8
"""The part of its lifetime for which a token is reused."""
_TOKEN: Final = re.compile(r"[-_.~+/=a-zA-Z0-9]+", re.ASCII)


class TokenEndpoint:
    """An issuer with the client's credentials. Calling it returns a token."""

    def __init__(self, url: str, client_id: str, secret: str, scope: str = "") -> None:
        """Store the credentials. Raises ValueError if the id or the secret is missing."""
        if not client_id or not secret:
            raise ValueError(f"{url}: sasl.jaas.config needs a module with clientId and clientSecret")
        form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        login = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Accept": "application/json"}
        self._url = url
        self._request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), headers)
        self._lock = threading.Lock()
        self._token = ""
        self._until_s = 0.0

    def __call__(self) -> str:
        """Return a valid token. Raises AuthenticationFailed, OSError."""
        with self._lock:
            if not self._token or time.monotonic() >= self._until_s:
                self._token, lifetime_s = self._fetch()
                self._until_s = time.monotonic() + lifetime_s * KEPT_FOR
            return self._token

    def _fetch(self) -> tuple[str, float]:
        try:
            content = HttpDocument(self._request).fetch()
        except urllib.error.HTTPError as error:
            with error:
                if error.code >= 500:
                    raise ConnectionError(f"{self._url} answered {error.code}") from None
                raise AuthenticationFailed(f"{self._url} issued no token: {error.code} {error.reason}") from None
        except ValueError as error:
            raise ConnectionError(f"{self._url}: {error}") from None
        try:
            response = json.loads(content)
            token, lifetime_s = response["access_token"], float(response.get("expires_in", 0))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise AuthenticationFailed(f"{self._url} answered without an access_token") from None
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise AuthenticationFailed(f"{self._url} answered with an invalid access_token")
        return token, lifetime_s
