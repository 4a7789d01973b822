"""Where the public keys of an issuer of tokens come from: a file, read once, or a URL, read again once in a while.

A token that names an unknown key has a URL read early, as issuers change keys: not sooner than `EARLIEST_S` after last
time, so that tokens of nobody cannot make a node ask for ever. While a URL cannot be read, the keys that were read last
stay. The only thread here waits for HTTP. Source: `RefreshingHttpsJwks`.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.broker.lasting import Died, lasting
from anabranch.broker.security.signed_tokens import keys_in

if TYPE_CHECKING:
    from jwt import PyJWK

log: Final = logging.getLogger(__name__)
EARLIEST_S: Final = 10.0
ANSWER_S: Final = 10.0
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

    async def start(self, died: Died) -> None:
        """Read the keys for the first time, and go on. Raises OSError, ValueError."""
        if not self.keys:
            self.keys = await self._read()
            self._task = lasting(self._refresh(), f"keys at {self._url}", died)

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
        return keys_in(await asyncio.to_thread(_fetched, self._url))


def _fetched(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            content: bytes = answer.read(BYTES_MAX + 1)
    except http.client.HTTPException as error:
        raise ValueError(f"no answer of HTTP ({type(error).__name__})") from None
    if len(content) > BYTES_MAX:
        raise ValueError(f"more than {BYTES_MAX} bytes")
    return content.decode()
