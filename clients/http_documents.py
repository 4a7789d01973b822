"""Fetches small documents by HTTP in the calling thread, within a time limit for the whole document.

A timeout of a socket counts for each read, so a server that sends a byte now and then would hold a thread for ever:
the sockets are shut down at the limit. Redirects stay within their scheme, and those of a request with credentials
within their server: they must reach nobody else.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any, Final

ANSWER_S: Final = 10.0
"""The timeout for a connection, and for each read of a response."""
DOCUMENT_S: Final = 30.0
"""The timeout for the whole document."""
BYTES_MAX: Final = 1 << 20


class HttpDocument:
    """One document: one thread fetches it, any other may cancel that."""

    def __init__(self, request: str | urllib.request.Request) -> None:
        self._request = request
        self._sockets: list[socket.socket] = []
        """A duplicate of each opened socket, because TLS detaches the original."""
        self._cancelled = False

    def fetch(self) -> bytes:
        """Return the content.

        Raises:
            OSError: It is not available: HTTPError for a refusal, TimeoutError at the limit.
            ValueError: The response is invalid or too long, or redirects to an invalid address.
        """
        opener = urllib.request.build_opener(_Http(self._connect), _Https(self._connect), _SafeRedirects())
        limit = threading.Timer(DOCUMENT_S, self.cancel)
        limit.daemon = True
        limit.start()
        try:
            with opener.open(self._request, timeout=ANSWER_S) as answer:
                content: bytes = answer.read(BYTES_MAX + 1)
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._check_cancelled()
            if isinstance(error, http.client.HTTPException):
                raise ValueError(f"not an HTTP response ({type(error).__name__})") from None
            raise
        finally:
            limit.cancel()
            self._close_sockets()
        self._check_cancelled()
        if len(content) > BYTES_MAX:
            raise ValueError(f"more than {BYTES_MAX} bytes")
        return content

    def cancel(self) -> None:
        """Have `fetch` raise TimeoutError now."""
        self._cancelled = True
        self._close_sockets()

    def _check_cancelled(self) -> None:
        if self._cancelled:
            raise TimeoutError(f"no whole response within {DOCUMENT_S:g} s")

    def _close_sockets(self) -> None:
        while self._sockets:
            one = self._sockets.pop()
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _connect(self, kind: type[http.client.HTTPConnection], host: str, **more: Any) -> http.client.HTTPConnection:
        connection: Any = kind(host, **more)

        def connect(*where: Any) -> socket.socket:
            opened = socket.create_connection(*where)
            self._sockets.append(opened.dup())
            if self._cancelled:
                self._close_sockets()
            return opened

        connection._create_connection = connect
        made: http.client.HTTPConnection = connection
        return made


Connect = Callable[..., http.client.HTTPConnection]


class _Http(urllib.request.HTTPHandler):
    def __init__(self, connect: Connect) -> None:
        super().__init__()
        self._connect = connect

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._connect, http.client.HTTPConnection), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, connect: Connect) -> None:
        super().__init__()
        self._connect = connect

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._connect, http.client.HTTPSConnection), req)


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects within one scheme: never from HTTPS to HTTP, nor to FTP. With credentials, within one server.

    urllib would send the credentials along.
    """

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        to = urllib.parse.urlsplit(newurl)
        if to.scheme != req.type or (req.has_header("Authorization") and to.netloc != req.host):
            raise urllib.error.HTTPError(req.full_url, code, f"it redirects to {newurl}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
