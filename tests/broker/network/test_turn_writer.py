"""The writes of one turn of the event loop: the first at once, the others together."""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from typing import Any

import pytest

from anabranch.broker.dispatch.request_context import CloseConnection, RequestContext
from anabranch.broker.network.turn_writer import WAITING_MAX, TurnWriter
from anabranch.protocol.apis.heartbeat import HeartbeatResponse
from anabranch.protocol.connection import NODE_SOFTWARE
from tests.broker.network.test_server import heartbeat
from tests.broker.serving import peer, request_frame, serving


async def test_first_write_of_each_turn_is_immediate_and_the_others_follow_at_its_end() -> None:
    writer = TurnWriter(asyncio.get_running_loop())
    for _ in range(2):
        written: list[int] = []
        for number in range(3):
            writer.write(partial(written.append, number))
            assert written == [0]
        await asyncio.sleep(0)
        assert written == [0, 1, 2]


async def test_writes_end_their_wait_when_many_wait() -> None:
    writer = TurnWriter(asyncio.get_running_loop())
    written: list[int] = []
    for number in range(1 + WAITING_MAX):
        writer.write(partial(written.append, number))
        assert len(written) == (1 + WAITING_MAX if number == WAITING_MAX else 1)
    assert written == sorted(written)


@pytest.mark.parametrize(("software", "bytes_sent_in_the_turn"), [("client", 0), (NODE_SOFTWARE, 10)])
async def test_response_waits_for_the_end_of_the_turn_unless_a_node_receives_it(
    software: str, bytes_sent_in_the_turn: int
) -> None:
    """The response has 10 bytes. Seen by what the server counts: a compiled connection lets no method be replaced."""
    sent_bytes: list[int] = []

    def count_sent() -> None:
        sent_bytes.append(server.sent_bytes)

    async def second_of_its_turn(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        asyncio.get_running_loop().call_soon(count_sent)
        server.turn_writer.write(count_sent)
        return HeartbeatResponse(error_code=0)

    async with serving({"Heartbeat": second_of_its_turn}) as server, peer(server.port) as one:
        name = bytes([len(software) + 1]) + software.encode()
        one.send(request_frame(18, 3, name + b"\x041.0\x00", flexible=True))
        await one.frame()
        one.send(heartbeat(1))
        assert await one.frame() == struct.pack(">ih", 1, 0)
        count_sent()
    before, at_next_turn, after = sent_bytes
    assert (at_next_turn - before, after - before) == (bytes_sent_in_the_turn, 10)


async def test_response_that_waits_is_sent_before_that_of_a_failure_and_before_the_end() -> None:
    requests = 0

    async def third_fails(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        nonlocal requests
        requests += 1
        if requests == 1:
            await asyncio.sleep(0)  # from now on the connection's task processes the requests
        server.turn_writer.write(lambda: None)
        if requests == 3:
            raise CloseConnection("enough", HeartbeatResponse(error_code=7))
        return HeartbeatResponse(error_code=0)

    async with serving({"Heartbeat": third_fails}) as server, peer(server.port) as one:
        await one.is_served()
        one.writer.writelines([struct.pack(">i", len(frame)) + frame for frame in map(heartbeat, range(3))])
        got = [await one.frame() for _ in range(3)]
        assert got == [struct.pack(">ih", number, 7 if number == 2 else 0) for number in range(3)]
        assert await one.closed()


async def test_response_that_waits_is_sent_before_a_stop() -> None:
    async def stopping(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        (connection,) = server.connections
        asyncio.get_running_loop().call_soon(connection.drain)  # before the writer ends its turn
        server.turn_writer.write(lambda: None)
        return HeartbeatResponse(error_code=0)

    async with serving({"Heartbeat": stopping}) as server, peer(server.port) as one:
        await one.is_served()
        one.send(heartbeat(1))
        assert await one.frame() == struct.pack(">ih", 1, 0)
        assert await one.closed()
