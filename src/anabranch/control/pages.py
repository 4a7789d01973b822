"""The files of the dashboard, and the access control for its requests.

The page itself is public; its requests need the token. A browser that has sent the token once gets a cookie instead,
which no script can read and no other site can send. The token is in no URL, hence in no log and no history.

A page of another site in the same browser must not control the cluster: cross-site requests are refused, and on
loopback also requests whose Host header is not a name of this machine.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping
from importlib import resources
from typing import Final
from urllib.parse import urlsplit

KINDS: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
NAME_CHARS_SHOWN: Final = 200
NAME: Final = re.compile(r"(?:[a-z]+/)?[A-Za-z_]+(?:\.[a-z]+)+")
INLINE: Final = re.compile(r"<script type=\"importmap\">(.*?)</script>", re.DOTALL)


def page_file(name: str) -> tuple[bytes, str] | None:
    """A file of the page, and its content type; None if there is no such file."""
    kind = KINDS.get(name.rpartition(".")[2])
    if kind is None or not NAME.fullmatch(name):
        return None
    found = resources.files("anabranch.dashboard").joinpath("page", name)
    return (found.read_bytes(), kind) if found.is_file() else None


def policy(index: str) -> str:
    """The content security policy of the page: its own files, and its one inline script."""
    inline = INLINE.search(index)
    assert inline is not None, "the page has an import map"
    digest = base64.b64encode(hashlib.sha256(inline.group(1).encode()).digest()).decode()
    return (
        f"default-src 'self'; script-src 'self' 'sha256-{digest}'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )


class AccessControl:
    """Decides which requests are served.

    Args:
        token: The required token; empty: none.
        local: Whether the address is loopback.
        port: The port; part of the cookie's name, because browsers share cookies between ports.
    """

    def __init__(self, token: str, *, local: bool, port: int) -> None:
        self._token = token
        self._local = local
        self.cookie = f"anabranch_{port}"
        self._session = secrets.token_urlsafe(32)

    def log_in(self, token: object) -> str | None:
        """The cookie's value for a login; None if the token is wrong."""
        right = isinstance(token, str) and hmac.compare_digest(_header_bytes(token), self._token.encode())
        return self._session if right else None

    def foreign(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Refuse a request of another site's page, or with another machine's name; None if it is neither."""
        host, origin = headers.get("Host", ""), headers.get("Origin")
        if origin is not None and _netloc(origin) != host:
            return 403, f"a page of {origin[:NAME_CHARS_SHOWN]} may not send this request"
        if self._local and not _is_here(host):
            return 403, f"the Host header must be a loopback address, not {host[:NAME_CHARS_SHOWN]!r}"
        return None

    def refusal(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> tuple[int, str] | None:
        """The status and reason for refusing a request; None if it is served."""
        if (refused := self.foreign(headers)) is not None:
            return refused
        if not self._token or self._shows_token(headers) or self._shows_cookie(cookies):
            return None
        return 401, "write the header `Authorization: Bearer TOKEN`, as given by --control-token"

    def _shows_token(self, headers: Mapping[str, str]) -> bool:
        return hmac.compare_digest(_header_bytes(headers.get("Authorization", "")), f"Bearer {self._token}".encode())

    def _shows_cookie(self, cookies: Mapping[str, str]) -> bool:
        return hmac.compare_digest(_header_bytes(cookies.get(self.cookie, "")), self._session.encode())


def _header_bytes(value: str) -> bytes:
    """The bytes of a header: aiohttp decodes bytes that are not UTF-8 as lone surrogates."""
    return value.encode(errors="surrogateescape")


def _netloc(origin: str) -> str | None:
    """Host and port of an Origin; None if it has none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:  # such as http://[
        return None


def _is_here(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # such as [
        return False
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
