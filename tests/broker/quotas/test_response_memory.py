"""Unread responses use bounded memory, and other connections are served.

Method: a server with a small bound, and real sockets that do not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.broker.dispatch.request_context import RequestContext
from anabranch.broker.network.response_queue import PIECE_BYTES
from anabranch.broker.network.server import Server
from anabranch.broker.quotas import response_memory
from anabranch.protocol import codec
from anabranch.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from anabranch.protocol.apis.heartbeat import HeartbeatResponse
from tests.broker.replication.replica_cluster import batch, replica_cluster
from tests.broker.serving import Peer, peer, request_frame, serving, until

BOUND = 8 << 20
RECORDS_BYTES = 2 << 20
ONE_RESPONSE_BYTES = RECORDS_BYTES + PIECE_BYTES + (1 << 16)
"""What stays in memory of a response that is sent in part: all of it, and a copy of a piece in the transport."""
VERSION = 11
REQUEST = FetchRequest(
    replica_id=-1,
    max_wait_ms=0,
    min_bytes=0,
    topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])],
)
HEARTBEAT = request_frame(12, 0, struct.pack(">h", 1) + b"g" + struct.pack(">ih", 0, 0), correlation_id=7)


def fetch_frame(correlation_id: int = 1, *, replica_id: int = -1) -> bytes:
    request = dataclasses.replace(REQUEST, replica_id=replica_id)
    return request_frame(1, VERSION, codec.encode(request, VERSION), correlation_id=correlation_id)


async def fetch(ctx: RequestContext, request: Any) -> FetchResponse:
    row = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=bytes(RECORDS_BYTES))
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])


async def heartbeat(ctx: RequestContext, request: Any) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=0)


def bounded(**settings: int) -> contextlib.AbstractAsyncContextManager[Server]:
    return serving({"Fetch": fetch, "Heartbeat": heartbeat}, queued_max_response_bytes=BOUND, **settings)


@contextlib.asynccontextmanager
async def unread(server: Server) -> AsyncIterator[Peer]:
    """A peer that reads nothing until its transport is resumed."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", server.port))
    reader, writer = await asyncio.open_connection(sock=raw)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def crowd(server: Server, count: int, requests: int) -> AsyncIterator[list[Peer]]:
    """Peers that have asked for more than the bound and read nothing."""
    async with contextlib.AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(unread(server)) for _ in range(count)]
        for correlation_id in range(requests):
            for one in peers:
                one.send(fetch_frame(correlation_id))
        await until(lambda: server.response_memory.full)
        yield peers


async def read_five(one: Peer) -> list[bytes]:
    return [await one.frame() for _ in range(5)]


def resume(one: Peer) -> None:
    one.writer.transport.resume_reading()  # type: ignore[attr-defined]


async def test_unread_responses_use_at_most_the_bound_and_one_response() -> None:
    async with bounded() as server, crowd(server, 30, 5) as peers, peer(server.port) as other:
        memory = server.response_memory
        other.send(HEARTBEAT)
        await other.frame()
        await until(lambda: memory.waiting > 0)
        assert memory.held_bytes <= BOUND + ONE_RESPONSE_BYTES
        assert memory.held_bytes == sum(one.held_response_bytes for one in server.connections)
        for one in peers:
            resume(one)
        for frames in await asyncio.gather(*map(read_five, peers)):
            assert [struct.unpack(">i", frame[:4])[0] for frame in frames] == list(range(5))
            assert all(len(frame) > RECORDS_BYTES for frame in frames)
        await until(lambda: memory.held_bytes == 0)
        assert memory.waiting == 0


async def test_unread_responses_count_also_if_each_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response of less than a megabyte fits into a transport's buffer: a hundred of them are a hundred megabytes."""
    monkeypatch.setattr(f"{__name__}.RECORDS_BYTES", 500_000)
    monkeypatch.setattr(f"{__name__}.BOUND", 2 << 20)
    async with bounded() as server, contextlib.AsyncExitStack() as stack:
        memory, requests = server.response_memory, 0
        for count in range(1, 40):
            one = await stack.enter_async_context(unread(server))
            await until(lambda count=count: len(server.connections) == count)  # type: ignore[misc]
            transport = server.connections[-1]._transport
            assert transport is not None
            while not transport.get_write_buffer_size() and not memory.full:
                one.send(fetch_frame())
                requests += 1
                await until(lambda: server.dispatcher.requests[1] == requests)  # noqa: B023 - it is awaited here
        assert memory.full
        assert memory.held_bytes <= BOUND + 1_000_000


async def test_follower_fetch_does_not_wait_for_unread_consumer_responses() -> None:
    async with bounded() as server, crowd(server, 10, 3), peer(server.port) as other:
        memory = server.response_memory
        waiting = memory.waiting
        other.send(fetch_frame(9, replica_id=2))
        assert len(await other.frame()) > RECORDS_BYTES
        assert memory.full and memory.waiting >= waiting


async def test_unread_follower_fetches_are_bounded() -> None:
    """A client may pretend to be a follower."""
    async with bounded() as server, crowd(server, 10, 3) as consumers, contextlib.AsyncExitStack() as stack:
        memory = server.response_memory
        while not memory.full_for_followers:
            held, one = memory.held_bytes, await stack.enter_async_context(unread(server))
            for correlation_id in range(3):  # the socket's buffers may take one response, or two
                one.send(fetch_frame(correlation_id, replica_id=2))
            await until(lambda: memory.held_bytes > held)  # noqa: B023 - it is awaited here
        assert memory.held_bytes <= 2 * BOUND + ONE_RESPONSE_BYTES
        follower = await stack.enter_async_context(peer(server.port))
        follower.send(fetch_frame(9, replica_id=2))
        waiting = memory.waiting
        await until(lambda: memory.waiting > waiting)
        for consumer in consumers:
            consumer.writer.transport.abort()
        assert len(await follower.frame()) > RECORDS_BYTES


async def test_requests_after_an_unread_response_wait_until_it_is_sent() -> None:
    processed = 0

    async def counted(ctx: RequestContext, request: Any) -> FetchResponse:
        nonlocal processed
        processed += 1
        return await fetch(ctx, request)

    async with serving({"Fetch": counted, "Heartbeat": heartbeat}) as server, unread(server) as one:
        for correlation_id in range(20):
            one.send(fetch_frame(correlation_id))
        await until(lambda: any(connection.held_response_bytes for connection in server.connections))
        seen = processed
        async with peer(server.port) as other:
            for _ in range(50):
                other.send(HEARTBEAT)
                await other.frame()
        assert processed == seen < 20
        resume(one)
        for _ in range(20):
            await one.frame()
        assert processed == 20


async def test_peer_that_reads_nothing_is_closed_when_others_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(response_memory, "STALL_S", 0.2)
    monkeypatch.setattr(response_memory, "CHECK_S", 0.02)
    async with bounded() as server, crowd(server, 10, 3) as peers, peer(server.port) as other:
        other.send(fetch_frame(9))
        with caplog.at_level(logging.WARNING):
            assert len(await other.frame()) > RECORDS_BYTES
        assert "has read nothing" in caplog.text
        assert "queued.max.response.bytes=8388608" in caplog.text
        await until(lambda: len(server.connections) < 11)
        resume(peers[0])
        assert await peers[0].closed()


async def test_peer_that_reads_nothing_is_closed_after_the_idle_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_memory, "CHECK_S", 0.02)
    async with bounded(connections_max_idle_ms=300) as server, unread(server) as one:
        for _ in range(3):
            one.send(fetch_frame())
        await until(lambda: server.response_memory.held_bytes > 0)
        await until(lambda: server.response_memory.held_bytes == 0 and not server.connections)


async def test_idle_peer_that_leaves_a_short_response_unread_is_disconnected() -> None:
    """A clean close would wait for the peer for ever."""
    lost: list[object] = []

    async def short(ctx: RequestContext, request: Any) -> FetchResponse:
        row = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=bytes(20_000))
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])

    async with serving({"Fetch": short}, connections_max_idle_ms=400) as server, unread(server) as one:
        await until(lambda: bool(server.connections))
        (connection,) = server.connections
        server.on_gone = lost.append
        for count in range(1, 1000):
            one.send(fetch_frame())
            await until(lambda count=count: server.dispatcher.requests[1] == count)  # type: ignore[misc]
            if connection._transport is not None and connection._transport.get_write_buffer_size():
                break
        assert connection.held_response_bytes == 0
        await until(lambda: connection._transport is None)
        await until(lambda: bool(lost))


async def test_peer_that_reads_slowly_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads a piece in every other check interval."""
    monkeypatch.setattr(response_memory, "STALL_S", 0.3)
    monkeypatch.setattr(response_memory, "CHECK_S", 0.01)
    async with bounded() as server, crowd(server, 10, 3) as peers:
        slow = peers[0]
        resume(slow)
        async with asyncio.timeout(60):
            left = 3 * (RECORDS_BYTES + 100)
            while left > 300 and (got := await slow.reader.read(1 << 15)):
                left -= len(got)
                await asyncio.sleep(0.01)
        assert left <= 300


async def test_response_being_sent_during_the_stop_is_completed() -> None:
    size_bytes = 32 << 20

    async def long(ctx: RequestContext, request: Any) -> FetchResponse:
        row = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=bytes(size_bytes))
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])

    async with serving({"Fetch": long}) as server, unread(server) as one:
        one.send(fetch_frame(3))
        await until(lambda: server.response_memory.held_bytes > 0)
        stopping = asyncio.create_task(server.stop(drain_s=60))
        await until(lambda: server._stopping)
        resume(one)
        frame = await one.frame()
        assert struct.unpack(">i", frame[:4]) == (3,)
        assert len(frame) > size_bytes
        await stopping


async def test_fetch_is_limited_to_half_of_the_free_memory_and_at_least_one_batch() -> None:
    async with replica_cluster(1, queued_max_response_bytes=1_000_000) as cluster:
        await cluster.lead(1, replicas=(1,))
        for _ in range(20):
            await cluster.produce(1, batch("x" * 100_000))
        memory = cluster.brokers[1].server.response_memory
        row = await cluster.fetch(1, 0)
        assert 400_000 <= len(row.records) <= 500_000
        memory.held_bytes += 900_000
        assert 100_000 < len((await cluster.fetch(1, 0)).records) < 200_000
        memory.held_bytes -= 900_000


def test_unbounded_response_memory_allows_any_size() -> None:
    memory = response_memory.ResponseMemory(-1, 1.0)
    memory.held_bytes = 1 << 40
    assert not memory.full
    assert memory.share_bytes > 1 << 40
