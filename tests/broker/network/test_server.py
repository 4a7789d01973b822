"""The connection: order, back-pressure, limits, and the effects of failures."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import socket
import struct
from typing import Any

import pytest

from anabranch.broker.config.listeners import Listener
from anabranch.broker.dispatch.dispatcher import HANDLERS, Dispatcher
from anabranch.broker.dispatch.request_context import CloseConnection, RequestContext
from anabranch.broker.network.server import Server
from anabranch.controller.zk.session import ConnectionLoss
from anabranch.protocol import codec
from anabranch.protocol.apis.api_versions import ApiVersionsResponse
from anabranch.protocol.apis.heartbeat import HeartbeatResponse
from anabranch.protocol.apis.metadata import MetadataResponse
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.serving import SETTINGS, lone_services, peer, request_frame, serving, until

HEARTBEAT_BODY = struct.pack(">h", 1) + b"g" + struct.pack(">ih", 1, 1) + b"m"


def heartbeat(correlation_id: int) -> bytes:
    return request_frame(12, 0, HEARTBEAT_BODY, correlation_id=correlation_id)


async def test_api_versions_lists_served_ranges_in_every_version() -> None:
    async with serving() as server, peer(server.port) as one:
        one.send(request_frame(18, 0))
        frame = await one.frame()
        assert frame[:4] == struct.pack(">i", 1)
        response, _ = codec.decode(ApiVersionsResponse, 0, frame, 4)
        ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        assert ranges == server.dispatcher.audiences.others.advertised
        one.send(request_frame(18, 3, b"\x07kafka-p\x041.0\x00"[:0] + b"\x06kafka\x041.0\x00", flexible=True))
        response, _ = codec.decode(ApiVersionsResponse, 3, await one.frame(), 4)
        assert response.error_code == ErrorCode.NONE
        one.send(request_frame(18, 3, b"\x03-a\x041.0\x00", flexible=True))
        response, _ = codec.decode(ApiVersionsResponse, 3, await one.frame(), 4)
        assert response.error_code == ErrorCode.INVALID_REQUEST


async def test_api_versions_of_unknown_version_gets_a_version_0_response() -> None:
    async with serving() as server, peer(server.port) as one:
        one.send(request_frame(18, 99, b"whatever that will mean", flexible=True))
        response, _ = codec.decode(ApiVersionsResponse, 0, await one.frame(), 4)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(row.api_key, row.max_version) for row in response.api_keys] == [(18, 4)]
        await one.is_served()


async def test_pipelined_requests_are_processed_one_by_one_and_in_order() -> None:
    running, order = 0, []

    async def slow(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        nonlocal running
        running += 1
        assert running == 1, "two requests of one connection at a time"
        await asyncio.sleep(0)
        order.append(len(order))
        running -= 1
        return HeartbeatResponse(error_code=0)

    async with serving({"Heartbeat": slow}) as server, peer(server.port) as one:
        for correlation_id in range(50):
            one.send(heartbeat(correlation_id))
        got = [struct.unpack(">i", (await one.frame())[:4])[0] for _ in range(50)]
        assert got == list(range(50)) == order


async def test_responses_to_requests_of_one_read_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ready(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=0)

    async with serving({"Heartbeat": ready}) as server, peer(server.port) as one:
        one.send(heartbeat(0))
        await one.frame()
        (connection,) = server._connections
        assert connection._transport is not None
        writes: list[int] = []
        write = connection._transport.writelines
        monkeypatch.setattr(connection._transport, "writelines", lambda chunks: writes.append(0) or write(chunks))
        one.writer.writelines([struct.pack(">i", len(frame)) + frame for frame in map(heartbeat, range(50))])
        for correlation_id in range(50):
            assert await one.frame() == struct.pack(">ih", correlation_id, 0)
        assert len(writes) == 1


async def test_suspended_request_continues_in_the_connections_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that starts eagerly has the same context before and after its wait."""
    tasks: list[asyncio.Task[Any] | None] = []

    async def patient(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        tasks.append(asyncio.current_task())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        tasks.append(asyncio.current_task())
        return HeartbeatResponse(error_code=0)

    async with serving({"Heartbeat": patient}) as server, peer(server.port) as one, peer(server.port) as other:
        for peers in (one, other):
            await peers.is_served()
        one.send(heartbeat(1))
        await until(lambda: len(tasks) == 1)
        await other.is_served()
        assert await one.frame() == struct.pack(">ih", 1, 0)
        (task,) = set(tasks)
        assert task in {connection._serving.task for connection in server._connections}


async def test_expired_timeout_cancels_the_wait_and_not_the_connection() -> None:
    """A cancellation before the task takes over belongs to the wait."""

    async def hasty(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        return HeartbeatResponse(error_code=0)

    async with serving({"Heartbeat": hasty}) as server, peer(server.port) as one:
        await one.is_served()
        one.send(heartbeat(1))
        assert await one.frame() == struct.pack(">ih", 1, 0)


async def test_context_variables_are_kept_over_a_wait() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen = []

    async def patient(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        variable.set(variable.get() + 1)
        await asyncio.sleep(0)
        seen.append(variable.get())
        return HeartbeatResponse(error_code=0)

    async with serving({"Heartbeat": patient}) as server, peer(server.port) as one, peer(server.port) as other:
        for peers in (one, one, other):
            peers.send(heartbeat(1))
            await peers.frame()
    assert seen == [1, 2, 1]


async def test_request_received_in_another_task_is_handled_by_the_connections_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TLS may deliver remaining bytes in the task that closes the transport."""
    tasks: list[asyncio.Task[Any] | None] = []

    async def ready(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        tasks.append(asyncio.current_task())
        return HeartbeatResponse(error_code=0)

    async with serving({"Heartbeat": ready}) as server, peer(server.port) as one:
        await one.is_served()
        (connection,) = server._connections
        frame = heartbeat(1)
        chunk = struct.pack(">i", len(frame)) + frame
        connection.get_buffer(len(chunk))[: len(chunk)] = chunk
        connection.buffer_updated(len(chunk))
        assert await one.frame() == struct.pack(">ih", 1, 0)
        assert tasks == [connection._serving.task]


@pytest.mark.parametrize("then", ["waits", "does not wait"])
async def test_handler_exception_has_the_same_effect_before_and_after_a_wait(
    then: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests start eagerly; responses to earlier ones are still sent."""
    taken_up = 0

    async def closing(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        nonlocal taken_up
        taken_up += 1
        if taken_up == 3:
            if then == "waits":
                await asyncio.sleep(0)
            raise CloseConnection("enough")
        return HeartbeatResponse(error_code=0)

    with caplog.at_level(logging.INFO, logger="anabranch.broker"):
        async with serving({"Heartbeat": closing}) as server, peer(server.port) as one:
            await one.is_served()
            one.writer.writelines([struct.pack(">i", len(frame)) + frame for frame in map(heartbeat, range(4))])
            for correlation_id in range(2):
                assert await one.frame() == struct.pack(">ih", correlation_id, 0)
            assert await one.closed()
            await until(lambda: server.connection_count == 0)
    assert "enough" in caplog.text
    assert taken_up == 3


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (struct.pack(">i", -5), "frame of -5 bytes"),
        (struct.pack(">i", 2**31 - 1), "frame of 2147483647 bytes"),
        (struct.pack(">i", 3) + b"abc", "shorter than its header"),
        (struct.pack(">i", 8) + struct.pack(">hhi", 999, 0, 1), "unknown API 999"),
        (struct.pack(">i", 11) + request_frame(3, 99), "Metadata v99"),
        (struct.pack(">i", 15) + request_frame(3, 0, b"\x7f\xff\xff\xff"), "Metadata v0"),
    ],
)
async def test_malformed_request_closes_the_connection_and_is_logged_once(
    raw: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="anabranch.broker"):
        async with serving() as server, peer(server.port) as good, peer(server.port) as bad:
            bad.writer.write(raw)
            assert await bad.closed()
            await good.is_served()
    (record,) = [one for one in caplog.records if one.name.startswith("anabranch.broker")]
    assert reason in record.getMessage()
    assert record.exc_info is None


async def test_handler_bug_is_answered_if_possible_and_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(ctx: RequestContext, request: Any) -> Any:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, logger="anabranch.broker"):
        async with serving({"Heartbeat": broken, "Metadata": broken}) as server:
            async with peer(server.port) as one, peer(server.port) as other:
                one.send(heartbeat(7))
                response, _ = codec.decode(HeartbeatResponse, 0, await one.frame(), 4)
                assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
                assert await one.closed()
                await other.is_served()
                other.send(request_frame(3, 0, struct.pack(">i", 0)))
                assert await other.closed(), "Metadata v0 has no place for the error"
            async with peer(server.port) as another:
                await another.is_served()
    assert "bug in the handler of Heartbeat v0" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_lost_zookeeper_connection_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    async def silent(ctx: RequestContext, request: Any) -> Any:
        raise ConnectionLoss("/brokers")

    with caplog.at_level(logging.INFO, logger="anabranch.broker"):
        async with serving({"Heartbeat": silent, "Metadata": silent}) as server, peer(server.port) as one:
            one.send(heartbeat(7))
            response, _ = codec.decode(HeartbeatResponse, 0, await one.frame(), 4)
            assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
            one.send(request_frame(3, 0, struct.pack(">i", 0)))
            assert await one.closed(), "Metadata v0 has no place for the error"
    assert "bug" not in caplog.text
    assert "ZooKeeper has not answered" in caplog.text


async def test_kafka_error_of_a_handler_becomes_the_top_level_error_code() -> None:
    async def refusing(ctx: RequestContext, request: Any) -> Any:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, "elsewhere")

    async with serving({"Heartbeat": refusing}) as server, peer(server.port) as one:
        for correlation_id in (1, 2):
            one.send(heartbeat(correlation_id))
            response, _ = codec.decode(HeartbeatResponse, 0, await one.frame(), 4)
            assert response.error_code == ErrorCode.NOT_COORDINATOR


async def test_a_handler_may_close_the_connection() -> None:
    async def closing(ctx: RequestContext, request: Any) -> Any:
        raise CloseConnection("acks=0 failed")

    async with serving({"Heartbeat": closing}) as server, peer(server.port) as one:
        one.send(heartbeat(1))
        assert await one.closed()


async def test_reading_pauses_during_a_request() -> None:
    """Blocks the first request, then floods the connection."""
    release = asyncio.Event()

    async def blocked(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        await release.wait()
        return HeartbeatResponse(error_code=0)

    body = struct.pack(">h", 30_000) + b"g" * 30_000 + HEARTBEAT_BODY[3:]
    async with serving({"Heartbeat": blocked}) as server, peer(server.port) as one:
        one.writer.transport.set_write_buffer_limits(high=1 << 30)
        for number in range(1000):
            one.send(request_frame(12, 0, body, correlation_id=number))
        (connection,) = server._connections
        await until(lambda: connection._read_paused)
        received_bytes = server.received_bytes
        for _ in range(100):
            await asyncio.sleep(0)  # a turn in which the loop would read on
        assert server.received_bytes == received_bytes
        assert connection._core.buffered <= 4 * server.buffered_bytes_max
        release.set()
        for number in range(1000):
            assert await one.frame() == struct.pack(">ih", number, 0)


@pytest.mark.parametrize("then", ["waits", "does not wait"])
async def test_unread_responses_stop_request_processing(then: str) -> None:
    """A peer that never reads must not make responses queue without bound."""
    answered = 0

    async def large(ctx: RequestContext, request: Any) -> MetadataResponse:
        nonlocal answered
        if then == "waits":
            done = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(done.set_result, None)
            await done
        answered += 1
        return MetadataResponse(brokers=[], topics=[], cluster_id="x" * 30000)

    async with serving({"Metadata": large}) as server, peer(server.port) as one:
        one.writer.transport.pause_reading()
        frame = request_frame(3, 2, struct.pack(">i", 0))
        for _ in range(2000):
            one.send(frame)
        (connection,) = server._connections
        await until(lambda: connection._writer.is_paused)
        seen = answered
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert answered == seen < 2000
        one.writer.transport.resume_reading()
        for _ in range(2000):
            await one.frame()
        assert answered == 2000


async def test_idle_connections_are_closed() -> None:
    async with serving() as server, peer(server.port) as one:
        await one.is_served()
        server._idle_s = 0.1  # not while it was still being served
        assert server._sweep is not None
        server._sweep.cancel()
        server._schedule_sweep()
        assert await one.closed()
        await until(lambda: server.connection_count == 0)


async def test_connections_to_a_server_not_open_yet_wait_in_order() -> None:
    taken: list[int] = []

    async def handle(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        taken.append(ctx.peer.port)
        return HeartbeatResponse(error_code=0)

    async with (
        serving({"Heartbeat": handle}, is_open=False) as server,
        peer(server.port) as first,
        peer(server.port) as second,
    ):
        for one in (second, first):
            one.send(heartbeat(7))
        await until(lambda: server.received_bytes >= 2 * (len(heartbeat(7)) + 4))
        assert taken == []
        server.open()
        assert (await first.frame())[:4] == (await second.frame())[:4] == struct.pack(">i", 7)
        assert taken == [one.writer.get_extra_info("sockname")[1] for one in (first, second)]
        async with peer(server.port) as third:
            third.send(heartbeat(8))
            assert (await third.frame())[:4] == struct.pack(">i", 8)


async def test_number_of_connections_is_bounded() -> None:
    async with serving(max_connections=2) as server:
        async with peer(server.port) as first, peer(server.port) as second:
            for one in (first, second):
                await one.is_served()
            async with peer(server.port) as third:
                assert await third.closed()
        await until(lambda: server.connection_count == 0)
        async with peer(server.port) as fourth:
            await fourth.is_served()


TWO = tuple(Listener(name, "PLAINTEXT", "127.0.0.1", 0) for name in ("INTERNAL", "EXTERNAL"))


async def test_brokers_are_admitted_to_a_full_node() -> None:
    """As in Kafka, the least recently used connection of another listener gives way (KIP-402)."""
    async with serving(max_connections=2, listeners=TWO, inter_broker_listener="INTERNAL") as server:
        external, internal = server.ports["EXTERNAL"], server.ports["INTERNAL"]
        async with peer(external) as first, peer(external) as second:
            for one in (second, first, second):
                await one.is_served()
            async with peer(external) as third:
                assert await third.closed()
            async with peer(internal) as broker, peer(internal) as other:
                await broker.is_served()
                assert await first.closed(), "the least recently used one"
                await other.is_served()
                assert await second.closed()
                async with peer(internal) as another:
                    await another.is_served()
                    await broker.is_served()


async def test_listener_has_its_own_limits() -> None:
    given = {"listener.name.external.max.connections": "1", "listener.name.internal.max.connections": "2"}
    async with serving(listeners=TWO, inter_broker_listener="INTERNAL", given=given) as server:
        external, internal = server.ports["EXTERNAL"], server.ports["INTERNAL"]
        async with peer(external) as first, peer(internal) as second, peer(internal) as third:
            for one in (first, second, third):
                await one.is_served()
            for port in (external, internal):
                async with peer(port) as another:
                    assert await another.closed()
            server.set_listener_limits({})
            async with peer(external) as another:
                await another.is_served()


async def test_brokers_do_not_wait_behind_too_many_new_clients() -> None:
    limits = {"quota_window_num": 61, "max_connection_creation_rate": 0}
    async with (
        serving(**limits, listeners=TWO, inter_broker_listener="INTERNAL") as server,
        peer(server.ports["EXTERNAL"]) as client,
        peer(server.ports["INTERNAL"]) as broker,
    ):
        await broker.is_served()
        assert server._entrances["EXTERNAL"]._waiting, "it waits for a second"
        await client.is_served()


async def test_only_produces_of_a_disconnected_peer_are_processed() -> None:
    """A Produce with acks=0 counts even if its producer closes. A cancelled commit does not: it could undo a retried
    one.
    """
    seen, release = [], asyncio.Event()

    async def noting(ctx: RequestContext, request: Any) -> None:
        seen.append(type(request).__name__)
        await release.wait()

    async with serving({"Heartbeat": noting, "Produce": noting, "OffsetCommit": noting}) as server:
        async with peer(server.port) as one:
            one.send(heartbeat(1))
            for correlation_id in range(20):
                one.send(request_frame(0, 0, struct.pack(">hii", 0, 0, 0), correlation_id=correlation_id))
            one.send(request_frame(8, 0, struct.pack(">h", 1) + b"g" + struct.pack(">i", 0), correlation_id=30))
            await until(lambda: len(seen) == 1, 30)
        await until(lambda: all(connection._transport is None for connection in server._connections), 30)
        release.set()
        await until(lambda: server.connection_count == 0, 30)
        assert seen == ["HeartbeatRequest", *["ProduceRequest"] * 20]


async def test_long_poll_is_cancelled_when_its_connection_closes() -> None:
    dropped = asyncio.Event()

    async def waiting(ctx: RequestContext, request: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            dropped.set()

    async with serving({"Fetch": waiting}) as server:
        async with peer(server.port) as one:
            one.send(request_frame(1, 0, struct.pack(">iiii", -1, 2**31 - 1, 1, 0)))
            await until(lambda: any(connection.busy for connection in server._connections))
        async with asyncio.timeout(60):
            await dropped.wait()
        await until(lambda: server.connection_count == 0)


async def test_stop_waits_for_the_running_request() -> None:
    started = asyncio.Event()

    async def slow(ctx: RequestContext, request: Any) -> HeartbeatResponse:
        started.set()
        await asyncio.sleep(0.05)
        return HeartbeatResponse(error_code=0)

    async with serving({"Heartbeat": slow}) as server, peer(server.port) as one:
        one.send(heartbeat(1))
        one.send(heartbeat(2))
        await started.wait()
        stopping = asyncio.ensure_future(server.stop())
        response, _ = codec.decode(HeartbeatResponse, 0, await one.frame(), 4)
        assert response.error_code == 0
        assert await one.closed()
        await stopping
        assert server.connection_count == 0


@pytest.mark.parametrize("turns", range(5))
async def test_connection_accepted_during_the_stop_is_closed(turns: int) -> None:
    """The loop accepts a connection, creates its transport and calls its protocol in three iterations."""
    async with serving() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as late:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.stop()
            late.setblocking(False)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(late, 1), 10) == b""
            assert server.connection_count == 0


async def test_start_that_is_cancelled_at_any_step_leaves_no_listening_socket() -> None:
    for turns in range(20):
        server = Server(SETTINGS, Dispatcher(await lone_services(), HANDLERS))
        starting = asyncio.create_task(server.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        if starting.done():
            await server.stop()
            break
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert [acceptor.sockets for acceptor in server._acceptors] in ([], [()])
        gc.collect()
    else:
        raise AssertionError("the server did not start in 20 turns of the loop")
