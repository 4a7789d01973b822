"""A document comes whole and in time, or is an expected error; no thread is held.

Method: servers on loopback that lie, drip or are silent. What a broker makes of it is in `test_jwks.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import urllib.request
from collections.abc import AsyncIterator, Iterable

import pytest

from anabranch.clients import http_documents as module
from anabranch.clients.http_documents import BYTES_MAX, HttpDocument
from tests.broker.serving import until
from tests.cases import for_each

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
SLOW_BODY = [HEAD % 100_000, *itertools.repeat(b" ", 10_000)]
SLOW_HEAD = [b"HTTP/1.1 200 OK\r\nX: ", *itertools.repeat(b"x", 10_000)]
SILENCE: list[bytes] = []


@contextlib.asynccontextmanager
async def answering(pieces: Iterable[bytes], *, pause_s: float = 0, ends: bool = True) -> AsyncIterator[str]:
    """A server that answers with pieces, and the address of a document there."""
    handlers: list[asyncio.Task[None] | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause_s)  # the pace of the bytes
            if not ends:
                await reader.read()
        writer.close()

    async with asyncio.timeout(60), await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        await asyncio.gather(*(one for one in handlers if one is not None))


async def fetched(url: str) -> bytes:
    return await asyncio.to_thread(HttpDocument(url).fetch)


async def test_document_is_fetched() -> None:
    async with answering([HEAD % BYTES_MAX, b"x" * BYTES_MAX]) as url:
        assert await fetched(url) == b"x" * BYTES_MAX
    async with answering([b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"]) as url:
        with pytest.raises(OSError, match="503"):
            await fetched(url)


@for_each(
    [
        ([b"SSH-2.0-nothing\r\n\r\n"], "not an HTTP response"),
        ([HEAD % (BYTES_MAX + 1), b"x" * (BYTES_MAX + 1)], "more than 1048576 bytes"),
        ([b"HTTP/1.1 302 Found\r\nLocation: http://a..b/\r\nContent-Length: 0\r\n\r\n"], "label empty or too long"),
        ([b"HTTP/1.1 302 Found\r\nLocation: http://h:x/\r\nContent-Length: 0\r\n\r\n"], "not an HTTP response|port"),
    ]
)
async def test_invalid_response_is_a_value_error(pieces: list[bytes], reason: str) -> None:
    async with answering(pieces) as url:
        with pytest.raises(ValueError, match=reason):
            await fetched(url)


@for_each(["https://127.0.0.1:1/", "ftp://127.0.0.1/", "file:///etc/passwd"])
async def test_redirect_to_another_scheme_is_refused(to: str) -> None:
    async with answering([f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()]) as url:
        with pytest.raises(OSError, match=r"redirects to|302"):
            await fetched(url)


async def test_credentials_are_not_sent_to_another_server() -> None:
    async with answering([HEAD % 2, b"ok"]) as other:
        redirect = f"HTTP/1.1 302 Found\r\nLocation: {other}\r\nContent-Length: 0\r\n\r\n".encode()
        async with answering([redirect]) as url:
            assert await fetched(url) == b"ok"
            request = urllib.request.Request(url, headers={"Authorization": "Basic c2VjcmV0"})
            with pytest.raises(OSError, match="redirects to"):
                await asyncio.to_thread(HttpDocument(request).fetch)


@pytest.mark.parametrize("pieces", [SLOW_BODY, SLOW_HEAD, SILENCE], ids=["body", "head", "silence"])
async def test_response_that_never_ends_times_out(pieces: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """The test ends only with the thread."""
    monkeypatch.setattr(module, "DOCUMENT_S", 0.3)
    async with answering(pieces, pause_s=0.02, ends=False) as url:
        with pytest.raises(TimeoutError, match=r"no whole response within 0\.3 s"):
            await fetched(url)


async def test_fetch_is_cancelled_by_another_thread() -> None:
    async with answering(SILENCE, ends=False) as url:
        document = HttpDocument(url)
        fetching = asyncio.create_task(asyncio.to_thread(document.fetch))
        await until(lambda: bool(document._sockets))
        document.cancel()
        with pytest.raises(TimeoutError):
            await fetching
