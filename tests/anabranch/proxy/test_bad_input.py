"""After malformed input from either side, a TLS proxy closes that connection and serves others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from anabranch.clients.certificates import CertificateAuthority
from anabranch.clients.tls import TlsSettings, client_context
from anabranch.cluster.in_process import Cluster
from anabranch.protocol import codec
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.proxy.proxy import Proxy
from tests.anabranch.proxy.stories import place, settings
from tests.anabranch.proxy.test_secured import own_tls, upstream_tls
from tests.broker.mutated_frames import framed, mutated_frames
from tests.broker.serving import request_frame, until
from tests.secured.certificates import files

FRAMES = 100
HANDSHAKE = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)
QUIET_S = 0.05
"""A damaged answer may be one that never ends."""
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def both_sides() -> AsyncIterator[tuple[Cluster, Proxy]]:
    """A proxy with TLS here and there."""
    async with (
        asyncio.timeout(300),
        Cluster(1, listeners=["SSL://127.0.0.1:0"], properties=files().properties) as cluster,
        Proxy(settings(cluster.bootstrap_servers, tls=own_tls(), upstream_tls=upstream_tls())) as proxy,
    ):
        yield cluster, proxy


def trusting() -> ssl.SSLContext:
    return client_context(TlsSettings(truststore_type="PEM", truststore_location=str(files().ca)))


async def connect(servers: str, tls: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*place(servers.partition(",")[0]), ssl=tls)


async def ask(servers: str, frame: bytes) -> bytes:
    """What is answered on a connection of its own; empty: it was closed."""
    reader, writer = await connect(servers, trusting())
    writer.write(frame)
    try:
        return await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    finally:
        writer.transport.abort()


async def serves(proxy: Proxy) -> None:
    """Another client gets its answer."""
    assert len(await ask(proxy.bootstrap_servers, framed(request_frame(18, 0)))) > 100


def bugs(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR or one.exc_info]


async def test_mutated_client_frames_close_only_their_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with both_sides() as (_, proxy):
        for frame in mutated_frames(FRAMES):
            reader, writer = await connect(proxy.bootstrap_servers, trusting())
            writer.write(framed(request_frame(18, 0)))
            await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            writer.write(frame)
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(0.01):
                    await reader.read()
            writer.transport.abort()
        await serves(proxy)
        await until(lambda: not any(one.connections for one in proxy.ports.brokers.values()))
    assert not bugs(caplog)
    said = [one.getMessage() for one in caplog.records if one.name == "anabranch.proxy.connection"]
    assert said and len(said) == len(set(said)), "a connection is closed in one line"


@pytest.mark.parametrize(
    "sent",
    [
        HANDSHAKE,
        HANDSHAKE[:7],
        b"\x16\x03\x01\xff\xff" + b"x" * 70_000,
        b"\x15\x03\x01\x00\x02\x02\x28",
        framed(request_frame(18, 0)),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0",
        b"",
    ],
    ids=lambda one: one[:8].hex() or "nothing",
)
async def test_bytes_that_are_no_tls_are_refused(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with both_sides() as (_, proxy):
        reader, writer = await connect(proxy.bootstrap_servers, None)
        writer.write(sent)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        await serves(proxy)
    assert not bugs(caplog)


async def test_client_with_other_certificate_authority_ends_the_handshake(caplog: pytest.LogCaptureFixture) -> None:
    other = ssl.create_default_context(cadata=CertificateAuthority().certificate.decode())
    async with both_sides() as (_, proxy):
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(proxy.bootstrap_servers, other)
        await serves(proxy)
    assert not bugs(caplog)


async def test_tls_to_a_plaintext_port_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(60), Cluster(1) as cluster, Proxy(settings(cluster.bootstrap_servers)) as proxy:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connect(proxy.bootstrap_servers, trusting())
        reader, writer = await connect(proxy.bootstrap_servers, None)
        writer.write(framed(request_frame(18, 0)))
        assert await reader.readexactly(4)
        writer.close()
    assert not bugs(caplog)


async def _closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)  # the first byte of a handshake


async def _answers_in_plain_text(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100))


async def _alerts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"\x15\x03\x03\x00\x02\x02\x28")


async def _resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    own: socket.socket = writer.get_extra_info("socket")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextlib.asynccontextmanager
async def upstream(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that speaks as a test has it; closes each connection afterwards.

    It holds the tasks of its connections. asyncio holds such a task by its own connection alone: one that still waits
    for another stream when that is lost is collected as garbage, and reported.
    """
    serving: set[asyncio.Task[None]] = set()

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        task.add_done_callback(serving.discard)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(closing, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for one in serving:
            one.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


@pytest.mark.parametrize("serve", [_closes, _answers_in_plain_text, _alerts, _resets])
async def test_upstream_that_ends_in_handshake_is_reported_in_one_line(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"tls": own_tls(), "upstream_tls": upstream_tls()}
    async with asyncio.timeout(60), upstream(serve) as server, Proxy(settings(server, **given)) as proxy:
        for _ in range(5):
            assert await ask(proxy.bootstrap_servers, framed(request_frame(18, 0))) == b"", "the client is closed"
    assert not bugs(caplog)
    assert sum("does not respond" in one.getMessage() for one in caplog.records) == 1


async def test_mutated_upstream_responses_close_only_their_connection(caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(1)
    hostile = False

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a request to the cluster, and change a few bytes of the response."""
        there, here = await connect(cluster.bootstrap_servers, trusting())
        try:
            while True:
                size = await reader.readexactly(4)
                here.write(size + await reader.readexactly(struct.unpack(">i", size)[0]))
                answer = bytearray(await there.readexactly(struct.unpack(">i", await there.readexactly(4))[0]))
                for _ in range(rng.randint(1, 3) if hostile else 0):
                    at = rng.randrange(len(answer) + 1)
                    match rng.randrange(4):
                        case 0 if at < len(answer):
                            answer[at] ^= 1 << rng.randrange(8)
                        case 1:
                            del answer[at : at + rng.randint(1, 8)]
                        case 2:
                            answer[at:at] = rng.randbytes(rng.randint(1, 8))
                        case 3:
                            del answer[at:]
                length = rng.choice([-1, 0, 3, 2**31 - 1, 1 << 20]) if hostile and rng.random() < 0.1 else len(answer)
                writer.write(struct.pack(">i", length) + answer)
        finally:
            here.transport.abort()

    requests = [framed(request_frame(18, 0)), framed(request_frame(18, 3, b"\x02x\x02y\x00", flexible=True))]
    for version in (1, 8, 9, 12):
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        body = codec.encode(request, version)
        requests.append(framed(request_frame(3, version, body, flexible=version >= 9)))
    requests += [framed(request_frame(10, 1, b"\0\x01g\0")), framed(request_frame(60, 0, b"\0\0", flexible=True))]
    async with (
        asyncio.timeout(300),
        Cluster(1, listeners=["SSL://127.0.0.1:0"], properties=files().properties) as cluster,
        upstream(relay, own_tls()) as server,
        Proxy(settings(server, tls=own_tls(), upstream_tls=upstream_tls(), journal_size=100)) as proxy,
    ):
        hostile = True
        for number in range(FRAMES):
            with contextlib.suppress(TimeoutError, ConnectionError, OSError):
                async with asyncio.timeout(QUIET_S):
                    await ask(proxy.bootstrap_servers, requests[number % len(requests)])
        hostile = False
        await serves(proxy)
    assert not bugs(caplog)


async def test_malformed_frame_behind_a_request_closes_connection_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = framed(struct.pack(">hhih", 3, 1, 1, 0x4001) + b"tt")  # a client id beyond the end
    async with both_sides() as (_, proxy):
        for _ in range(10):
            reader, writer = await connect(proxy.bootstrap_servers, trusting())
            writer.write(framed(request_frame(18, 0)) + broken)
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.transport.abort()
    said = [one.getMessage() for one in caplog.records if one.name == "anabranch.proxy.connection"]
    assert len(said) == len(set(said)) == 10
