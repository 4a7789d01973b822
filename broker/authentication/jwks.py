"""Where the public keys of an issuer of tokens come from: a file, read once, or a URL, read again once in a while.

A token that names an unknown key has a URL read early, as issuers change keys: not sooner than `EARLIEST_S` after last
time, so that tokens of nobody cannot make a node ask for ever. While a URL cannot be read, the keys that were read last
stay. The only thread here waits for HTTP, at most `DOCUMENT_S`. Source: `RefreshingHttpsJwks`.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import socket
import urllib.error
import urllib.parse
import urllib.request
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.authentication.signed_tokens import keys_in
from anabranch.broker.tasks.supervised_task import OnFailure, supervised_task

if TYPE_CHECKING:
    from jwt import PyJWK

log: Final = logging.getLogger(__name__)
EARLIEST_S: Final = 10.0
ANSWER_S: Final = 10.0
"""How long a node waits for a connection, and for each piece of an answer."""
DOCUMENT_S: Final = 30.0
"""How long it waits for all of it."""
BYTES_MAX: Final = 1 << 20


class Jwks:
    """The keys at a URL."""

    def __init__(self, url: str, refresh_ms: int) -> None:
        """Raises ValueError for a URL of another scheme, OSError and ValueError for a file that has no keys."""
        self.keys: tuple[PyJWK, ...] = ()
        self._url = url
        self._refresh_s = refresh_ms / 1000
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        scheme = urllib.parse.urlsplit(url).scheme
        if scheme == "file":
            self.keys = keys_in(Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path)).read_text())
        elif scheme not in ("http", "https"):
            raise ValueError(f"sasl.oauthbearer.jwks.endpoint.url={url}: write file:///..., https://... or http://...")

    async def start(self, died: OnFailure) -> None:
        """Read the keys for the first time, and go on. Raises OSError, ValueError."""
        if not self.keys:
            self.keys = await self._read()
            self._task = supervised_task(self._refresh(), f"keys at {self._url}", died)

    async def stop(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def want(self, key_id: str) -> None:
        """A token names a key that is not there: read again soon."""
        if not self._wanted.is_set() and self._task is not None:
            log.info("a token names the key %r: reading %s again", key_id, self._url)
        self._wanted.set()

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(min(EARLIEST_S, self._refresh_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(self._refresh_s - EARLIEST_S, 0)):
                    await self._wanted.wait()
            self._wanted.clear()
            try:
                self.keys = await self._read()
            except (OSError, ValueError) as error:
                log.warning("%s: the keys of tokens stay as they were: %s", self._url, error)

    async def _read(self) -> tuple[PyJWK, ...]:
        """The keys as they are now. Raises TimeoutError, OSError, ValueError."""
        sockets: list[socket.socket] = []
        try:
            async with asyncio.timeout(DOCUMENT_S):
                return await asyncio.to_thread(lambda: keys_in(_fetched(self._url, sockets)))
        finally:
            for one in sockets:  # ends the thread's wait for an answer that comes slowly, or after a stop
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()


def _fetched(url: str, sockets: list[socket.socket]) -> str:
    """The document at a URL; `sockets` gets a duplicate of each one that is opened, to shut it down by."""
    opener = urllib.request.build_opener(_Http(sockets), _Https(sockets), _SameScheme())
    try:
        with opener.open(url, timeout=ANSWER_S) as answer:
            content: bytes = answer.read(BYTES_MAX + 1)
    except http.client.HTTPException as error:
        raise ValueError(f"no answer of HTTP ({type(error).__name__})") from None
    if len(content) > BYTES_MAX:
        raise ValueError(f"more than {BYTES_MAX} bytes")
    return content.decode()


class _Http(urllib.request.HTTPHandler):
    """Opens connections whose sockets are noted."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        super().__init__()
        self._sockets = sockets

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Send a request."""
        return self.do_open(partial(_noted, http.client.HTTPConnection, self._sockets), req)


class _Https(urllib.request.HTTPSHandler):
    """Opens connections over TLS whose sockets are noted."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        super().__init__()
        self._sockets = sockets

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Send a request."""
        return self.do_open(partial(_noted, http.client.HTTPSConnection, self._sockets), req)


def _noted(
    kind: type[http.client.HTTPConnection], sockets: list[socket.socket], host: str, **more: Any
) -> http.client.HTTPConnection:
    connection: Any = kind(host, **more)

    def connect(*where: Any) -> socket.socket:
        opened = socket.create_connection(*where)
        sockets.append(opened.dup())  # TLS takes the first one over
        return opened

    connection._create_connection = connect
    made: http.client.HTTPConnection = connection
    return made


class _SameScheme(urllib.request.HTTPRedirectHandler):
    """Follows redirects, as Java does, but never from HTTPS to HTTP, or to FTP."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The request to send instead. Raises HTTPError."""
        if urllib.parse.urlsplit(newurl).scheme != req.type:
            raise urllib.error.HTTPError(req.full_url, code, f"it redirects to {newurl}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
