"""The built-in ZooKeeper on a port: sessions over sockets, connections that are given up, and a file for its znodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch.controller.zk.journal import JournaledTree
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.controller.zk.server import tcp_server
from anabranch.controller.zk.server.tcp_server import ZooKeeperTcpServer, first_session_id
from anabranch.controller.zk.session import NoNode, SessionEvent, SessionExpired
from anabranch.controller.zk.tree import ZnodeTree
from tests.broker.serving import until
from tests.contracts.zk_worlds import Seen, answer_of
from tests.controller.zk.server.clients import connect_request


@asynccontextmanager
async def serving(tree: ZnodeTree, port: int = 0) -> AsyncIterator[ZooKeeperTcpServer]:
    server = ZooKeeperTcpServer(tree)
    await server.start("127.0.0.1", port)
    try:
        yield server
    finally:
        await server.stop()
        if isinstance(tree, JournaledTree):
            tree.close()


async def test_restarted_server_has_its_znodes_and_no_sessions(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with serving(JournaledTree(tmp_path / "journal")) as server:
            hosts, port = f"127.0.0.1:{server.port}", server.port
            zk = await open_kazoo(hosts)
            events = Seen[SessionEvent]()
            zk.on_session(events)
            _, kept = await zk.create_with_stat("/kept", b"1")
            await zk.create("/mine", ephemeral=True)
        await events.until(SessionEvent.SUSPENDED)
        async with serving(JournaledTree(tmp_path / "journal"), port):
            await events.until(SessionEvent.EXPIRED)
            assert await answer_of(zk.get("/kept")) is SessionExpired
            other = await open_kazoo(hosts)
            assert other.session_id > zk.session_id
            assert await other.get("/kept") == (b"1", kept)
            assert await answer_of(other.get("/mine")) is NoNode
            _, stat = await other.create_with_stat("/mine", ephemeral=True)
            assert stat.czxid > kept.czxid + 1
            await other.close()
        await zk.close()


async def test_connection_without_connect_request_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tcp_server, "CONNECT_TIMEOUT_S", 0.05)
    async with asyncio.timeout(60), serving(ZnodeTree()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        patient_reader, patient = await asyncio.open_connection("127.0.0.1", server.port)
        patient.write(connect_request())
        assert len(await patient_reader.readexactly(41)) == 41
        assert await reader.read() == b""
        assert "it sent no connect request within 0.05 s" in caplog.text
        patient.write(b"\0\0\0\x08\xff\xff\xff\xfe\0\0\0\x0b")  # a ping
        assert (await patient_reader.readexactly(20))[4:8] == b"\xff\xff\xff\xfe"
        writer.close()
        patient.close()


async def test_client_that_reads_nothing_is_not_read() -> None:
    """So the answers that it does not read stay within the buffers of a socket."""
    tree = ZnodeTree()
    tree.transact(lambda: tree.create("/large", bytes(1 << 20), owner=0))
    get = b"\0\0\0\x13" + b"\0\0\0\1" + b"\0\0\0\4" + b"\0\0\0\6/large" + b"\0"
    async with asyncio.timeout(60), serving(tree) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(connect_request())
        await reader.readexactly(41)
        writer.write(get * 1000)
        peer = await paused(server)
        assert peer._transport.get_write_buffer_size() < 3 << 20
        for _ in range(20):
            length = int.from_bytes(await reader.readexactly(4), "big")
            assert length > 1 << 20
            await reader.readexactly(length)
        assert peer._transport.get_write_buffer_size() < 3 << 20
        writer.close()


async def test_client_that_reads_nothing_loses_its_session_and_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tcp_server, "CLOSE_TIMEOUT_S", 0.05)
    tree = ZnodeTree()
    tree.transact(lambda: tree.create("/large", bytes(1 << 20), owner=0))
    get = b"\0\0\0\x13" + b"\0\0\0\1" + b"\0\0\0\4" + b"\0\0\0\6/large" + b"\0"
    async with asyncio.timeout(60), serving(tree) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(connect_request(timeout_ms=500) + get * 100)
        await paused(server)
        await until(lambda: not server._peers)
        assert server._service.sessions == {}
        writer.close()
    assert "it does not read its responses" in caplog.text


@pytest.mark.parametrize("start", [b"", connect_request(timeout_ms=500)], ids=["no session", "a session"])
async def test_client_that_sends_a_request_byte_by_byte_is_disconnected(
    start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of an incomplete request keep neither a connection without a session nor a session alive."""
    monkeypatch.setattr(tcp_server, "CONNECT_TIMEOUT_S", 0.3)
    async with asyncio.timeout(60), serving(ZnodeTree()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(start + b"\0\x0f\0\0")  # the length of a large request
        answer = asyncio.ensure_future(reader.read())
        while not answer.done():
            writer.write(b"\0")
            await asyncio.wait([answer], timeout=0.02)  # the pace of the bytes
        assert isinstance(answer.exception(), ConnectionResetError | None)  # a byte may come after the end
        assert server._service.sessions == {}
        writer.close()


async def paused(server: ZooKeeperTcpServer) -> tcp_server.Peer:
    """Wait until a peer is not read."""
    while True:
        for peer in server._peers:
            if not peer._transport.is_reading():
                return peer
        await asyncio.sleep(0)


async def test_server_that_was_held_reads_heartbeats_before_it_ends_sessions() -> None:
    """The loop stands still for longer than the session's timeout, and a heartbeat comes meanwhile."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60), serving(ZnodeTree()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(connect_request(timeout_ms=5000))
        await reader.readexactly(41)
        for sent in (b"\0\0\0\x08\xff\xff\xff\xfe\0\0\0\x0b", b""):
            now_s = server._service._clock()
            writer.write(sent)
            server._service._clock = lambda now_s=now_s: now_s + 10  # type: ignore[misc]
            assert server._tick is not None
            server._tick.cancel()
            loop.call_later(0, server._expire)
            if sent:
                assert len(await reader.readexactly(20)) == 20
        assert await reader.read() == b"", "without a heartbeat it ends"
        writer.close()


async def test_server_ends_when_its_file_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would answer from memory what a restart forgets."""
    async with asyncio.timeout(60), serving(tree := JournaledTree(tmp_path / "journal")) as server:
        zk = await open_kazoo(f"127.0.0.1:{server.port}", session_timeout_ms=1000)

        def full(descriptor: int, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("anabranch.controller.zk.journal.os.write", full)
            creating = asyncio.ensure_future(answer_of(zk.create("/a")))
            with pytest.raises(OSError, match="No space left"):
                await server.wait_failed()
        creating.cancel()
        assert tree.zxid > 0
        await zk.close()


async def test_bug_closes_one_connection(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(60), serving(ZnodeTree()) as server:

        def broken(*_: object) -> None:
            raise RuntimeError("planted")

        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
            patch.setattr(server._service, "connect", broken)
            writer.write(connect_request())
            assert await reader.read() == b""
        assert "planted" in caplog.text
        zk = await open_kazoo(f"127.0.0.1:{server.port}")
        await zk.close()
        writer.close()


def test_session_ids_grow_over_restarts() -> None:
    now_ms = 1_800_000_000_000
    assert first_session_id(now_ms) + 60_000 < first_session_id(now_ms + 1) < 1 << 56
