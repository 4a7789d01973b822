"""Loads the public keys of a token issuer: once from a file, or periodically from a URL.

A token that names an unknown key triggers an early read, because issuers rotate keys. Reads are at least `EARLIEST_S`
apart, so invalid tokens cannot cause unlimited requests. If a read fails, the previous keys stay in use. The only
thread here waits for HTTP, at most `DOCUMENT_S`. Source: `RefreshingHttpsJwks`.
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
"""The timeout for a connection, and for each read of a response."""
DOCUMENT_S: Final = 30.0
"""The timeout for the whole document."""
BYTES_MAX: Final = 1 << 20


class Jwks:
    """The key set at one URL."""

    def __init__(self, url: str, refresh_ms: int) -> None:
        """Raises ValueError for an unsupported URL scheme; OSError or ValueError for a file without usable keys."""
        self.keys: tuple[PyJWK, ...] = ()
        self._url = url
        self._refresh_s = refresh_ms / 1000
        self._requested = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        scheme = urllib.parse.urlsplit(url).scheme
        if scheme == "file":
            self.keys = keys_in(Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path)).read_text())
        elif scheme not in ("http", "https"):
            raise ValueError(f"sasl.oauthbearer.jwks.endpoint.url={url}: write file:///..., https://... or http://...")

    async def start(self, died: OnFailure) -> None:
        """Read the keys, and start the periodic reads. Raises OSError, ValueError."""
        if not self.keys:
            self.keys = await self._read()
            self._task = supervised_task(self._refresh(), f"keys at {self._url}", died)

    async def stop(self) -> None:
        """Stop the periodic reads."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def request_refresh(self, key_id: str) -> None:
        """Request an early read, because a token names an unknown key."""
        if not self._requested.is_set() and self._task is not None:
            log.info("unknown token key %r: reading %s again", key_id, self._url)
        self._requested.set()

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(min(EARLIEST_S, self._refresh_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(self._refresh_s - EARLIEST_S, 0)):
                    await self._requested.wait()
            self._requested.clear()
            try:
                self.keys = await self._read()
            except (OSError, ValueError) as error:
                log.warning("%s: cannot read the token keys, keeping the previous ones: %s", self._url, error)

    async def _read(self) -> tuple[PyJWK, ...]:
        """Read the current keys. Raises TimeoutError, OSError, ValueError."""
        sockets: list[socket.socket] = []
        try:
            async with asyncio.timeout(DOCUMENT_S):
                return await asyncio.to_thread(lambda: keys_in(_fetch(self._url, sockets)))
        finally:
            for one in sockets:  # end a thread that still waits for a response
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()


def _fetch(url: str, sockets: list[socket.socket]) -> str:
    """Return the document at a URL; append a duplicate of each opened socket to `sockets`, to shut it down later."""
    opener = urllib.request.build_opener(_Http(sockets), _Https(sockets), _SameScheme())
    try:
        with opener.open(url, timeout=ANSWER_S) as answer:
            content: bytes = answer.read(BYTES_MAX + 1)
    except http.client.HTTPException as error:
        raise ValueError(f"not an HTTP response ({type(error).__name__})") from None
    if len(content) > BYTES_MAX:
        raise ValueError(f"more than {BYTES_MAX} bytes")
    return content.decode()


class _Http(urllib.request.HTTPHandler):
    def __init__(self, sockets: list[socket.socket]) -> None:
        super().__init__()
        self._sockets = sockets

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_connect, http.client.HTTPConnection, self._sockets), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, sockets: list[socket.socket]) -> None:
        super().__init__()
        self._sockets = sockets

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_connect, http.client.HTTPSConnection, self._sockets), req)


def _connect(
    kind: type[http.client.HTTPConnection], sockets: list[socket.socket], host: str, **more: Any
) -> http.client.HTTPConnection:
    connection: Any = kind(host, **more)

    def connect(*where: Any) -> socket.socket:
        opened = socket.create_connection(*where)
        sockets.append(opened.dup())  # TLS detaches the original socket
        return opened

    connection._create_connection = connect
    made: http.client.HTTPConnection = connection
    return made


class _SameScheme(urllib.request.HTTPRedirectHandler):
    """Follows redirects within one scheme: never from HTTPS to HTTP, nor to FTP."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme != req.type:
            raise urllib.error.HTTPError(req.full_url, code, f"it redirects to {newurl}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
