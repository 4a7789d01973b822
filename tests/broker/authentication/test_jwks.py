"""A broker reads its issuer's keys, gets new ones, and keeps the old ones while it cannot read them.

Method: a real HTTP server on loopback, whose document changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import itertools
import json
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from anabranch.broker.authentication import jwks as module
from anabranch.broker.authentication.jwks import Jwks
from anabranch.broker.tasks.supervised_task import log_failure
from anabranch.clients.http_documents import HttpDocument
from tests.broker.serving import until
from tests.secured.issuer import Issuer, jwks

HOUR_MS = 3_600_000


class Document:
    """What the server has; None: it is out of order."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.url = ""
        self.asked = 0


@pytest.fixture
def document() -> Iterator[Document]:
    held = Document()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            held.asked += 1
            content = (held.text or "").encode()
            self.send_response(500 if held.text is None else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        held.url = f"http://127.0.0.1:{server.server_address[1]}/keys"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield held
        server.shutdown()
        thread.join()


def ids(keys: Jwks) -> set[str | None]:
    return {one.key_id for one in keys.keys}


async def test_token_with_unknown_key_id_refreshes_the_keys(
    document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EARLIEST_S", 0.01)
    document.text = jwks(Issuer(key_id="old"))
    keys = Jwks(document.url, HOUR_MS)
    await keys.start(log_failure)
    assert ids(keys) == {"old"}
    document.text = jwks(Issuer(key_id="old"), Issuer(key_id="new"))
    keys.request_refresh("new")
    await until(lambda: ids(keys) == {"old", "new"})
    document.text, request_count = None, document.asked
    keys.request_refresh("newer")
    await until(lambda: document.asked > request_count)
    document.text, request_count = "no keys", document.asked
    keys.request_refresh("newer")
    await until(lambda: document.asked > request_count)
    assert ids(keys) == {"old", "new"}, "what cannot be read leaves what was"
    document.text = jwks(Issuer(key_id="newer"))
    keys.request_refresh("newer")
    await until(lambda: ids(keys) == {"newer"})
    await keys.stop()


async def test_unknown_key_ids_do_not_cause_repeated_fetches(document: Document) -> None:
    document.text = jwks(Issuer())
    keys = Jwks(document.url, HOUR_MS)
    await keys.start(log_failure)
    for number in range(1000):
        keys.request_refresh(str(number))
    await keys.stop()
    assert document.asked == 1


@pytest.mark.parametrize("text", [None, "no keys", "[" * 1000])
async def test_start_without_usable_keys_fails(document: Document, text: str | None) -> None:
    document.text = text
    with pytest.raises((OSError, ValueError)):
        await Jwks(document.url, HOUR_MS).start(log_failure)


async def drip(
    pieces: Iterable[bytes], ended: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer with a piece every now and then, for as long as the other side takes it."""
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
    writer.close()
    ended.set()


SLOW_BODY = itertools.chain([b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"], itertools.repeat(b" "))


async def test_endless_jwks_response_times_out_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DOCUMENT_S", 0.5)
    fetching: list[threading.Thread] = []
    fetched = HttpDocument.fetch

    def noted(document: HttpDocument) -> bytes:
        fetching.append(threading.current_thread())
        try:
            return fetched(document)
        finally:
            fetching.clear()

    monkeypatch.setattr(HttpDocument, "fetch", noted)
    ended = asyncio.Event()
    answer = partial(drip, SLOW_BODY, ended)
    async with asyncio.timeout(60), await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TimeoutError):
            await Jwks(f"http://127.0.0.1:{port}/", HOUR_MS).start(log_failure)
        await until(lambda: not fetching)
        await ended.wait()


def oct_key() -> str:
    return json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256", "kid": "one"}]})


def private_use() -> str:
    return json.dumps({"keys": [{**Issuer().public, "use": "enc"}]})


@pytest.mark.parametrize(
    "text",
    [oct_key(), private_use(), '{"keys": []}', '{"keys": [{"kty": "RSA", "n": "", "e": ""}]}', "[]", "null", "<html>"],
)
async def test_jwks_without_usable_keys_is_refused(document: Document, text: str) -> None:
    document.text = text
    with pytest.raises(ValueError, match="JWKS"):
        await Jwks(document.url, HOUR_MS).start(log_failure)


async def test_jwks_file_is_read_at_start(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(jwks(Issuer(key_id="kept")))
    keys = Jwks(f"file://{tmp_path}/keys.json", HOUR_MS)
    await keys.start(log_failure)
    assert ids(keys) == {"kept"}
    await keys.stop()
    with pytest.raises(ValueError, match="write file:///"):
        Jwks("ftp://example/keys", HOUR_MS)
    with pytest.raises(OSError, match="No such file"):
        Jwks(f"file://{tmp_path}/other.json", HOUR_MS)
