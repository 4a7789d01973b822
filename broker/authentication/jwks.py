"""Loads the public keys of a token issuer: once from a file, or periodically from a URL.

A token that names an unknown key triggers an early read, because issuers rotate keys. Reads are at least `EARLIEST_S`
apart, so invalid tokens cannot cause unlimited requests. If a read fails, the previous keys stay in use. The only
thread here waits for HTTP, at most `DOCUMENT_S`. Source: `RefreshingHttpsJwks`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.broker.authentication.signed_tokens import keys_in
from anabranch.broker.tasks.supervised_task import OnFailure, supervised_task
from anabranch.clients.http_documents import DOCUMENT_S, HttpDocument

if TYPE_CHECKING:
    from jwt import PyJWK

log: Final = logging.getLogger(__name__)
EARLIEST_S: Final = 10.0


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
        document = HttpDocument(self._url)
        try:
            async with asyncio.timeout(DOCUMENT_S):  # the lookup of the host has no limit of its own
                return await asyncio.to_thread(lambda: keys_in(document.fetch().decode()))
        finally:
            document.cancel()  # a thread that still waits for a response
