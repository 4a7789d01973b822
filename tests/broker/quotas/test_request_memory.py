"""Incoming requests use bounded memory, and no request waits for ever.

Method: a server with a small bound, real sockets, and peers that send large requests, parts of them, or drips.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings, ConfigError
from anabranch.broker.config.effective_config import with_properties
from anabranch.broker.dispatch.request_context import RequestContext
from anabranch.broker.network.server import Server
from anabranch.broker.quotas import request_memory
from anabranch.broker.quotas.request_memory import FREE_BYTES
from anabranch.protocol.apis.heartbeat import HeartbeatResponse
from anabranch.protocol.framing import READ_BYTES_MAX
from tests.broker.serving import Peer, peer, request_frame, serving, until

BOUND = 4 << 20
LARGE = 1 << 20
ANSWER = struct.pack(">ih", 7, 0)
SMALL = request_frame(12, 0, struct.pack(">h", 1) + b"g" + struct.pack(">ih", 0, 0), correlation_id=7)


def large(size_bytes: int = LARGE, correlation_id: int = 7) -> bytes:
    """A Heartbeat with trailing bytes, as of a newer version."""
    frame = request_frame(12, 0, struct.pack(">h", 1) + b"g" + struct.pack(">ih", 0, 0), correlation_id=correlation_id)
    return frame + bytes(size_bytes - len(frame))


def begin(one: Peer, size_bytes: int, sent_bytes: int) -> None:
    """The first bytes of a request."""
    one.writer.write(struct.pack(">i", size_bytes) + large(size_bytes)[: sent_bytes - 4])


async def heartbeat(ctx: RequestContext, request: Any) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=0)


@contextlib.asynccontextmanager
async def crowd(server: Server, count: int, size_bytes: int, sent_bytes: int) -> AsyncIterator[list[Peer]]:
    """Peers that have each sent a part of a request."""
    async with contextlib.AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(peer(server.port)) for _ in range(count)]
        for one in peers:
            begin(one, size_bytes, sent_bytes)
        await until(lambda: server.request_memory.full, 30)
        yield peers


async def test_unfinished_requests_use_at_most_the_bound_and_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving({"Heartbeat": heartbeat}, queued_max_request_bytes=BOUND) as server:
        async with crowd(server, 40, 4 * LARGE, 3 * LARGE):
            seen = server.received_bytes
            while True:
                await asyncio.sleep(0.2)
                if seen == server.received_bytes:
                    break
                seen = server.received_bytes
            held = sum(connection._core.buffered for connection in server._connections)
            assert BOUND <= held <= BOUND + 4 * LARGE + 40 * FREE_BYTES + 2 * READ_BYTES_MAX
            async with peer(server.port) as other:
                other.send(SMALL)
                assert await other.frame() == ANSWER, "small requests come through"
        await until(lambda: server.connection_count == 0, 30)
        assert server.request_memory.held_bytes == 0


async def test_partial_requests_that_fill_the_memory_are_read_one_by_one() -> None:
    async with (
        serving({"Heartbeat": heartbeat}, queued_max_request_bytes=BOUND) as server,
        crowd(server, 12, LARGE, LARGE // 2) as peers,
    ):
        for one in peers:
            one.writer.write(large()[LARGE // 2 - 4 :])
        for one in peers:
            assert await one.frame() == ANSWER
        assert server.request_memory.held_bytes == 0


async def test_slow_sender_is_closed_and_others_continue(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(request_memory, "EXCLUSIVE_READ_S", 0.2)
    monkeypatch.setattr(request_memory, "EXCLUSIVE_READ_BYTES_PER_S", 100 * LARGE)

    async def drip(one: Peer) -> None:
        while True:
            one.writer.write(b"\0")
            await asyncio.sleep(0.02)

    with caplog.at_level(logging.WARNING, logger="anabranch.broker"):
        async with (
            serving({"Heartbeat": heartbeat}, queued_max_request_bytes=BOUND) as server,
            crowd(server, 5, 2 * LARGE, LARGE) as bad,
        ):
            drips = [asyncio.ensure_future(drip(one)) for one in bad]
            async with peer(server.port) as good:
                for _ in range(3):
                    good.send(large())
                    assert await good.frame() == ANSWER
            for one in drips:
                one.cancel()
    assert "are overdue" in caplog.text and "queued.max.request.bytes=4194304" in caplog.text


async def test_mutually_waiting_requests_are_all_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a group: memory is full of requests that all wait for the last one."""
    monkeypatch.setattr(request_memory, "EXCLUSIVE_READ_S", 0.1)
    everybody = 8
    came, all_there = 0, asyncio.Event()

    async def rebalance(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        nonlocal came
        came += 1
        if came == everybody:
            all_there.set()
        await all_there.wait()
        return HeartbeatResponse(error_code=0)

    async with serving({"Heartbeat": rebalance}, queued_max_request_bytes=BOUND) as server:
        async with contextlib.AsyncExitStack() as stack:
            members = [await stack.enter_async_context(peer(server.port)) for _ in range(everybody)]
            for one in members:
                one.send(large())
            for one in members:
                assert await one.frame() == ANSWER
        assert server.request_memory.held_bytes == 0


async def test_unbounded_request_memory_reads_every_request() -> None:
    async with serving({"Heartbeat": heartbeat}, queued_max_request_bytes=-1) as server, peer(server.port) as one:
        begin(one, 8 * LARGE, 7 * LARGE)
        await until(lambda: server.received_bytes == 7 * LARGE, 30)
        assert not server.request_memory.full


def test_bound_below_the_largest_request_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"queued.max.request.bytes=1000 is less than socket.request.max.byte"):
        with_properties(BrokerSettings(), {"queued.max.request.bytes": "1000"})
    raised = with_properties(BrokerSettings(), {"socket.request.max.bytes": "209715200"})
    assert raised.queued_max_request_bytes == 209715200, "a bound that nobody set gives way"
    with pytest.raises(ConfigError, match="lower the second"):
        with_properties(
            with_properties(BrokerSettings(), {"queued.max.request.bytes": "104857600"}),
            {"socket.request.max.bytes": "209715200"},
        )
    assert with_properties(BrokerSettings(), {"queued.max.request.bytes": "-1"}).queued_max_request_bytes == -1
