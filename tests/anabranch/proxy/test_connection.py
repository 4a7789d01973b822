"""Malformed input from either side ends one connection with one log line; buffers are bounded.

Method: upstreams and clients of a few lines, which send what no real one would.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from anabranch import Producer
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.connection import ClientConnection
from anabranch.proxy import listeners
from anabranch.proxy.proxy import Proxy
from anabranch.proxy.settings import ProxySettings
from tests.anabranch.proxy.stories import make_topics, place, proxied
from tests.broker.serving import until

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
MIB = 1 << 20


@contextlib.asynccontextmanager
async def in_front_of(talk: Talk, **more: object) -> AsyncIterator[Proxy]:
    """A proxy whose upstream talks like this; what the proxy asks by itself is not answered."""
    tasks = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await talk(reader, writer)
        writer.transport.abort()
        tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy = Proxy(ProxySettings(upstream=(server.sockets[0].getsockname()[:2],), **more))  # type: ignore[arg-type]
    proxy._on_metadata = nothing_more  # type: ignore[method-assign]
    try:
        async with asyncio.timeout(60), proxy:
            yield proxy
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def nothing_more() -> bool:
    """Instead of asking who is there."""
    return True


def request(key: int, number: int, body: bytes = b"", version: int = 0) -> bytes:
    message = struct.pack(">hhih", key, version, number, 1) + b"c" + body
    return struct.pack(">i", len(message)) + message


def answer(number: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, number) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def connect(proxy: Proxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*place(proxy.bootstrap_servers))


@contextlib.asynccontextmanager
async def client(proxy: Proxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await connect(proxy)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def echoing(reply: Callable[[bytes], bytes]) -> Talk:
    """An upstream that answers each request with what a function makes of it."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(reply(await read_frame(reader)))
            await writer.drain()

    return talk


@pytest.mark.parametrize(
    ("nonsense", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP request"),
        (answer(99, b""), "answer 99 instead of 1"),
        (struct.pack(">i", -5), "frame of -5 bytes"),
        (struct.pack(">ih", 2, 1), "without a correlation id"),
        (answer(1, b"\x7f\xff\xff\xff"), "Metadata v0"),
        (answer(1, struct.pack(">iih", 5, 1, 32000)), "Metadata v0"),
        (struct.pack(">ii", 1 << 30, 1), "1073741824 bytes, allowed are"),
    ],
)
@pytest.mark.parametrize("journal_size", [0, 10])
async def test_malformed_upstream_response_closes_client_with_one_line(
    nonsense: bytes, says: str, journal_size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with in_front_of(echoing(lambda _: nonsense), journal_size=journal_size) as proxy:
        async with client(proxy) as (reader, writer):
            writer.write(request(3, 1, struct.pack(">i", 0)))
            assert await reader.read() == b""
        assert len(caplog.records) == 1 and says in caplog.text
        async with client(proxy) as (reader, writer):
            writer.write(request(3, 1, struct.pack(">i", 0)))
            assert await reader.read() == b"", "the next one gets as far"


async def test_upstream_that_closes_within_a_frame_closes_client() -> None:
    async def torn(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)
        writer.write(answer(1, b"x" * 1000)[:500])
        await writer.drain()
        writer.close()

    async with in_front_of(torn, journal_size=10) as proxy, client(proxy) as (reader, writer):
        writer.write(request(3, 1, struct.pack(">i", 0)))
        assert await reader.read() == b"", "what is read is not passed on in part"
        assert proxy.journal is not None
        assert [one.outcome for one in proxy.journal] == ["closed"]
    async with in_front_of(torn) as proxy, client(proxy) as (reader, writer):
        writer.write(request(12, 1))
        assert len(await reader.read()) == 500, "what passes, passes as far as it has come"


async def test_silent_upstream_is_awaited_until_client_disconnects() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(MIB):
            pass

    async with in_front_of(silent, journal_size=10) as proxy:
        reader, writer = await connect(proxy)
        writer.write(request(3, 1, struct.pack(">i", 0)) + request(3, 2, struct.pack(">i", 0)))
        assert proxy.journal is not None
        journal = proxy.journal
        await until(lambda: len(list(journal)) == 2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        writer.close()
        await until(lambda: [one.outcome for one in journal] == ["given up"] * 2)
        await until(lambda: not any(door.connections for door in proxy.ports))


async def test_malformed_client_requests_close_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with in_front_of(echoing(lambda frame: answer(int.from_bytes(frame[4:8], "big"), b"ok"))) as proxy:
        for nonsense in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", struct.pack(">i", 3) + b"abc"):
            async with client(proxy) as (reader, writer):
                writer.write(nonsense)
                assert await reader.read() == b""
        assert len(caplog.records) == 3
        async with client(proxy) as (reader, writer):  # an API and a version that nobody knows pass
            writer.write(request(9999, 7, b"?" * 100, version=77))
            assert await read_frame(reader) == struct.pack(">i", 7) + b"ok"
        assert len(caplog.records) == 3


@pytest.mark.parametrize("journal_size", [0, 10])
async def test_undecodable_frames_are_forwarded_unchanged(journal_size: int, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        in_front_of(
            echoing(lambda frame: answer(int.from_bytes(frame[4:8], "big"), frame)),
            journal_size=journal_size,
            frames=True,
        ) as proxy,
        client(proxy) as (reader, writer),
    ):
        for number, (key, version) in enumerate([(75, 0), (3000, 1), (1, 99), (1, 98), (8, 50), (0, 40)]):
            wire = request(key, number, b"\0\0\1" * 10, version)
            writer.write(wire)
            assert (await read_frame(reader))[4:] == wire[4:]
    warned = [one.getMessage() for one in caplog.records]
    assert [one.partition(" is unknown")[0] for one in warned] == ["API 1 v99", "API 0 v40"], "once for each API"


async def test_slow_reader_limits_buffered_bytes() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_frame(reader)
        writer.write(struct.pack(">ii", 512 * MIB, 1))
        while True:
            writer.write(b"x" * MIB)
            await writer.drain()
            sent += MIB

    async with in_front_of(flood) as proxy, client(proxy) as (reader, writer):
        writer.write(request(12, 1))
        await reader.readexactly(MIB)
        (connection,) = (one for door in proxy.ports for one in door.connections.values())
        upstream = connection._upstream.transport
        assert upstream is not None
        await until(lambda: not upstream.is_reading() or sent > 40 * MIB)
        assert sent < 40 * MIB, "sockets have buffers, and that is all"
        await reader.readexactly(20 * MIB)


async def test_slow_upstream_pauses_its_client() -> None:
    taken = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await taken.wait()

    async with in_front_of(deaf) as proxy:
        _, writer = await connect(proxy)
        writer.write(struct.pack(">ihhih", 1 << 30, 12, 0, 1, -1))
        sent = 0
        with contextlib.suppress(TimeoutError):
            while True:
                writer.write(b"x" * MIB)
                await asyncio.wait_for(writer.drain(), 0.3)
                sent += 1
        assert sent < 40
        writer.transport.abort()


async def test_requests_behind_a_held_one_are_bounded() -> None:
    async with in_front_of(echoing(lambda frame: answer(int.from_bytes(frame[4:8], "big"), b""))) as proxy:
        gate = proxy.faults.add(api="Heartbeat", hold=True, times=1)
        _, writer = await connect(proxy)
        heartbeat = b"\0\1g\0\0\0\1\0\1m"
        writer.write(request(12, 1, heartbeat))
        await gate.wait_hit()
        sent = 0
        with contextlib.suppress(TimeoutError):
            for number in range(2, 60):
                writer.write(request(13, number, b"x" * MIB))
                await asyncio.wait_for(writer.drain(), 0.3)
                sent += 1
        assert sent < 30
        (connection,) = next(iter(proxy.ports)).connections.values()
        assert connection.client.stream.held_bytes < 4 * MIB
        writer.transport.abort()


@pytest.mark.parametrize(
    ("rule", "error_code"),
    [
        ({"delay_ms": 1}, 0),
        ({"error": "UNKNOWN_MEMBER_ID"}, 25),
        ({"error": "UNKNOWN_MEMBER_ID", "after_work": True}, 25),
    ],
)
async def test_intercepted_request_behind_a_passing_one_is_answered_although_no_other_follows(
    rule: dict[str, Any], error_code: int
) -> None:
    both_sent = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)
        await both_sent.wait()
        writer.write(answer(1, b"passes"))
        await read_frame(reader)
        writer.write(answer(2, b"\0\0"))
        await reader.read()

    async with in_front_of(slow) as proxy, client(proxy) as (reader, writer):
        proxy.faults.add(api="Heartbeat", **rule)
        writer.write(request(11, 1) + request(12, 2, b"\0\1g\0\0\0\1\0\1m"))
        (connection,) = next(iter(proxy.ports)).connections.values()
        await until(lambda: len(connection._core.slots) == 2)
        both_sent.set()
        async with asyncio.timeout(10):
            assert await read_frame(reader) == struct.pack(">i", 1) + b"passes"
            assert await read_frame(reader) == struct.pack(">ih", 2, error_code)


async def test_unanswered_requests_of_one_connection_are_bounded() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(MIB):
            pass

    async with in_front_of(silent) as proxy:
        _, writer = await connect(proxy)
        one = request(12, 1, b"x" * 1000)
        with contextlib.suppress(TimeoutError):
            for _ in range(200):
                writer.write(one * 100)
                await asyncio.wait_for(writer.drain(), 0.3)
        (connection,) = next(iter(proxy.ports)).connections.values()
        assert 1000 < len(connection._core.slots) < 2000
        writer.transport.abort()


async def test_hundreds_of_connections_each_get_their_responses() -> None:
    async with in_front_of(echoing(lambda frame: answer(int.from_bytes(frame[4:8], "big"), frame[8:]))) as proxy:

        async def one(number: int) -> None:
            async with client(proxy) as (reader, writer):
                for turn in range(3):
                    writer.write(request(12, turn, b"%d-%d" % (number, turn)))
                    assert (await read_frame(reader)).endswith(b"c%d-%d" % (number, turn))

        await asyncio.gather(*map(one, range(300)))
        await until(lambda: not any(door.connections for door in proxy.ports))


async def test_decoded_responses_share_a_memory_limit_and_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound, size, clients = 8 * MIB, 4 * MIB, 12
    monkeypatch.setattr(listeners, "HELD_BYTES_MAX", bound)
    whole = struct.pack(">i", 0) + bytes(size - 4)  # no brokers, and much that nobody looks at

    async with in_front_of(echoing(lambda frame: answer(int.from_bytes(frame[4:8], "big"), whole))) as proxy:
        memory, highest = proxy.ports.memory, 0
        hold = memory.account

        def noted(connection: Any, size_bytes: int) -> None:
            nonlocal highest
            hold(connection, size_bytes)
            highest = max(highest, memory.held_bytes)

        monkeypatch.setattr(memory, "account", noted)
        lines = [await connect(proxy) for _ in range(clients)]
        for _, writer in lines:
            writer.write(request(3, 1, struct.pack(">i", 0)))
        await until(lambda: highest > size)
        for reader, writer in lines:
            assert len(await read_frame(reader)) == size + 4
            writer.close()
        assert size < highest < bound + 2 * size
        await until(lambda: memory.held_bytes == 0)


async def test_large_decoded_response_arrives_complete() -> None:
    async with proxied(1, journal_size=5) as (_, proxy):
        await make_topics(proxy.bootstrap_servers, "t", partitions=1)
        async with Producer(proxy.bootstrap_servers) as producer:
            for _ in range(8):
                await producer.send_and_wait("t", bytes(900_000))
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MIB)
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[part])])
        _, chunks = ClientConnection("c").request(request, 12)
        async with client(proxy) as (reader, writer):
            writer.write(b"".join(chunks))
            assert len(await read_frame(reader)) > 7_000_000
