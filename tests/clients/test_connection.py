"""Every call ends exactly once, with its response or the right exception.

Method: a real socket to a peer that is slow, silent, old, talks nonsense or goes away.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.clients.connection import Connection
from anabranch.clients.security import Security
from anabranch.protocol.apis.describe_cluster import DescribeClusterRequest
from anabranch.protocol.apis.fetch import FetchRequest
from anabranch.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.clients.peer import EVERYTHING, Peer, serve


def heartbeat(generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=generation, member_id="m")


async def echo(request: Any) -> Any:
    return HeartbeatResponse(throttle_time_ms=request.generation_id, error_code=0)


async def never(request: Any) -> Any:
    await asyncio.Event().wait()


async def opened(peer: Peer, **settings: Any) -> Connection:
    return await Connection.open("127.0.0.1", peer.port, client_id="test", **settings)


@asynccontextmanager
async def talking(
    answer: Callable[[Any], Awaitable[Any]] = echo, served: dict[int, tuple[int, int]] | None = None
) -> AsyncIterator[Peer]:
    """A peer; who talks to it leaves no task behind."""
    async with serve(answer, served) as peer:
        yield peer
        await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - peer.tasks - {asyncio.current_task()}
        assert not tasks, f"left behind: {tasks}"


async def test_responses_reach_their_callers() -> None:
    async with talking() as peer:
        connection = await opened(peer)
        answers = await asyncio.gather(*(connection.call(heartbeat(n)) for n in range(100)))
        assert [answer.throttle_time_ms for answer in answers] == list(range(100))
        assert connection.in_flight == 0
        await connection.close()
    assert [request.body.generation_id for request in peer.seen[1:]] == list(range(100))
    assert peer.seen[1].version == 4
    assert peer.seen[1].client_id == "test"


async def test_newest_common_version_is_used() -> None:
    async with talking(served={18: (0, 2), 12: (1, 2)}) as peer:
        connection = await opened(peer)
        assert connection.version_for(HeartbeatRequest) == 2
        await connection.call(heartbeat(1))
        with pytest.raises(KafkaError, match="does not serve Fetch") as refused:
            connection.version_for(FetchRequest)
        assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
        assert connection.supports(HeartbeatRequest)
        assert not connection.supports(DescribeClusterRequest)
        await connection.close()
    versions = [(request.api.name, request.version) for request in peer.seen]
    assert versions == [("ApiVersions", 0), ("ApiVersions", 2), ("Heartbeat", 2)]


@pytest.mark.parametrize("tls", [None, ssl.create_default_context()], ids=["plain", "tls"])
@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("a..b", 9092),
        ("a" * 64, 9092),
        ("a\0b", 9092),
        ("\ud800", 9092),
        (".a", 9092),
        ("", 9092),
        ("127.0.0.1", 70000),
        ("127.0.0.1", -1),
        ("::1", 1 << 40),
    ],
)
async def test_invalid_address_is_a_connection_error(host: str, port: int, tls: ssl.SSLContext | None) -> None:
    with pytest.raises(ConnectionError, match="cannot connect to") as refused:
        await Connection.open(host, port, client_id="test", security=Security(tls))
    assert "perhaps" not in str(refused.value)


async def test_peer_with_negative_versions_is_a_kafka_error() -> None:
    async with talking(served={18: (0, 3), 12: (-3, -1)}) as peer:
        connection = await opened(peer)
        with pytest.raises(KafkaError, match="does not serve Heartbeat"):
            await connection.call(heartbeat(1))
        await connection.close()


async def test_lost_connection_fails_every_open_call() -> None:
    async with talking(never) as peer:
        connection = await opened(peer)
        calls = [connection.send(heartbeat(n)) for n in range(3)]
        await peer.saw(2)
        peer.drop_connections()
        for call in calls:
            with pytest.raises(ConnectionError):
                await call
        assert connection.closed
        with pytest.raises(ConnectionError):
            await connection.call(heartbeat(4))
        await connection.close()


async def test_closed_connection_fails_open_calls() -> None:
    async with talking(never) as peer:
        connection = await opened(peer)
        call = connection.send(heartbeat(1))
        await connection.close()
        await connection.close()
        with pytest.raises(ConnectionError, match="closed by us"):
            await call


async def test_request_timeout_closes_connection() -> None:
    async with talking(never) as peer:
        connection = await opened(peer, request_timeout_ms=60000)
        patient = connection.send(heartbeat(1))
        hasty = connection.send(heartbeat(2), timeout_ms=30)
        with pytest.raises(TimeoutError, match="did not answer HeartbeatRequest"):
            await hasty
        with pytest.raises(ConnectionError):
            await patient
        assert connection.closed
        await connection.close()


async def test_timed_out_request_is_not_delivered_later() -> None:
    """A timed-out commit must not arrive after a newer one on another connection. The peer does not read, so the
    request is in kernel buffers at its timeout.
    """
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        connection = Connection(client_id="test", request_timeout_ms=50)
        await loop.create_connection(lambda: connection, *listener.getsockname())
        accepted, _ = await loop.sock_accept(listener)
        accepted.setblocking(False)
        with accepted:
            request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m" * 30_000)
            calls = [connection.send(request, version=4) for _ in range(1000)]
            said = await asyncio.gather(*calls, return_exceptions=True)
            assert TimeoutError in {type(one) for one in said}
            await connection.close()
            with pytest.raises(ConnectionResetError):
                while await loop.sock_recv(accepted, 1 << 20):
                    pass


async def test_timer_of_completed_call_does_not_affect_later_calls() -> None:
    release = asyncio.Event()

    async def slow_second(request: Any) -> Any:
        if request.generation_id == 2:
            await release.wait()
        return await echo(request)

    async with talking(slow_second) as peer:
        connection = await opened(peer)
        await connection.call(heartbeat(1), timeout_ms=20)
        second = connection.send(heartbeat(2), timeout_ms=60000)
        await asyncio.sleep(0.05)
        release.set()
        assert (await second).throttle_time_ms == 2
        await connection.close()


async def test_cancelled_call_does_not_shift_responses() -> None:
    release = asyncio.Event()

    async def held(request: Any) -> Any:
        await release.wait()
        return await echo(request)

    async with talking(held) as peer:
        connection = await opened(peer)
        first = asyncio.ensure_future(connection.call(heartbeat(1)))
        second = asyncio.ensure_future(connection.call(heartbeat(2)))
        await asyncio.sleep(0)
        first.cancel()
        release.set()
        assert (await second).throttle_time_ms == 2
        assert first.cancelled()
        await connection.close()


async def test_malformed_response_closes_connection_with_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async with talking(never) as peer:
        connection = await opened(peer)
        call = connection.send(heartbeat(1))
        await peer.saw(2)
        peer.writers[0].write(b"\x00\x00\x00\x05\x00\x00\x00\x63\x00")
        with pytest.raises(ConnectionError, match="malformed response"):
            await call
        await connection.close()
    lines = [record for record in caplog.records if record.name == "anabranch.clients.connection"]
    assert len(lines) == 1


async def test_refused_connect_is_a_connection_error() -> None:
    with pytest.raises(ConnectionError, match=r"cannot connect to 127\.0\.0\.1:1"):
        await Connection.open("127.0.0.1", 1, client_id=None)


async def test_silent_peer_is_a_connect_timeout() -> None:
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda reader, writer: writers.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(TimeoutError, match="within 50 ms"):
        await Connection.open("127.0.0.1", port, client_id=None, connect_timeout_ms=50)
    server.close()
    for writer in writers:
        writer.transport.abort()
    await asyncio.sleep(0)


async def test_oneway_request_expects_no_response() -> None:
    from anabranch.protocol.apis.produce import ProduceRequest

    async def quiet(request: Any) -> Any:
        return None if isinstance(request, ProduceRequest) else await echo(request)

    async with talking(quiet, dict(EVERYTHING)) as peer:
        connection = await opened(peer)
        connection.send_oneway(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]))
        assert (await connection.call(heartbeat(7))).throttle_time_ms == 7
        await connection.close()
