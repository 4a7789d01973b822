"""The adapter to the real server: threads, connecting, the chroot.

What it shares with the in-process one is in tests/contracts/test_zk_session.py.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from anabranch.cluster.local_zookeeper import LocalZooKeeper, why_unavailable
from anabranch.cluster.zookeeper import free_port
from anabranch.controller.candidacy import retry_connection_loss
from anabranch.controller.zk.access import Login
from anabranch.controller.zk.kazoo_session import KazooSession, open_kazoo
from anabranch.controller.zk.multi_read import NO_NODE
from anabranch.controller.zk.session import ConnectionLoss, NoNode, SessionEvent, WatchEvent
from tests.contracts.zk_worlds import PATIENCE_S, expire_session


@pytest.mark.zookeeper
async def test_session_has_one_thread_and_none_after_close(zookeeper_hosts: str) -> None:
    before = set(threading.enumerate())
    zk = await open_kazoo(zookeeper_hosts)
    assert len(set(threading.enumerate()) - before) == 1
    await zk.close()
    left = [thread.name for thread in set(threading.enumerate()) - before if not thread.name.startswith("asyncio")]
    assert left == []


@pytest.mark.zookeeper
async def test_expired_session_is_not_reopened(zookeeper_hosts: str) -> None:
    """kazoo would, and requests of the old session could run in the new one."""
    before = set(threading.enumerate())
    zk = await open_kazoo(zookeeper_hosts)
    assert isinstance(zk, KazooSession)
    (connection_thread,) = set(threading.enumerate()) - before
    expired = asyncio.Event()
    zk.on_session(lambda event: expired.set() if event is SessionEvent.EXPIRED else None)
    loop = asyncio.get_running_loop()
    await expire_session(zk, zookeeper_hosts.partition("/")[0])
    async with asyncio.timeout(60):
        await expired.wait()
    await loop.run_in_executor(None, connection_thread.join, 60)
    assert not connection_thread.is_alive()
    await zk.close()


@pytest.mark.zookeeper
async def test_chroot_is_created_and_hidden(zookeeper_hosts: str) -> None:
    inside = await open_kazoo(zookeeper_hosts, chroot="/deep/down")
    outside = await open_kazoo(zookeeper_hosts)
    assert await inside.children("/") == []
    root_news, seen = asyncio.Event(), list[WatchEvent]()
    await inside.children("/", lambda event: (seen.append(event), root_news.set())[0])
    await inside.create("/x", b"data")
    assert (await outside.get("/deep/down/x"))[0] == b"data"
    async with asyncio.timeout(60):
        await root_news.wait()
    assert seen == [WatchEvent("/", "children")]
    await inside.close()
    await outside.close()


@pytest.mark.zookeeper
async def test_null_data_of_stock_tools_is_read_as_empty(zookeeper_hosts: str) -> None:
    zk = await open_kazoo(zookeeper_hosts)
    stock = KazooClient(zookeeper_hosts, timeout=30)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, stock.start, PATIENCE_S)
    await loop.run_in_executor(None, stock.create, "/null", None)
    assert (await zk.get("/null"))[0] == b""
    for step in (
        stock.stop,
        stock.close,
    ):
        await loop.run_in_executor(None, step)
    await zk.close()


@pytest.mark.zookeeper
async def test_server_without_multi_read_gets_single_reads(
    zookeeper_hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closes the connection at unknown requests."""
    zk = await open_kazoo(zookeeper_hosts)
    await zk.create("/a", b"1")
    stored = await zk.get("/a")
    monkeypatch.setattr("anabranch.controller.zk.multi_read.MultiRead.type", 99)
    async with asyncio.timeout(60):
        found = await retry_connection_loss(lambda: zk.get_many(["/a", "/nowhere"]))
    assert found == [stored, None]
    await zk.close()


async def test_two_multi_reads_lost_in_a_row_are_followed_by_single_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """One may be lost with any connection."""
    session = KazooSession("127.0.0.1:1", 6000, "")
    lost, requests = [True, False, True, True], list[str]()

    async def ask(path: str, *_: object) -> object:
        requests.append(path)
        if path:
            raise NoNode(path)
        if lost.pop(0):
            raise ConnectionLoss
        return [NO_NODE]

    monkeypatch.setattr(session, "_ask", ask)
    assert await retry_connection_loss(lambda: session.get_many(["/a"])) == [None]
    assert requests == ["", ""], "both are multi reads"
    assert await retry_connection_loss(lambda: session.get_many(["/a"])) == [None]
    assert requests[2:] == ["", "", "/a"]


@pytest.mark.zookeeper
async def test_log_contains_no_password(zookeeper_hosts: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        zk = await open_kazoo(zookeeper_hosts, login=Login("digest", "brokers", "planted"), secured=True)
        await zk.create("/config/users/alice", b"keys of alice", make_parents=True)
        await zk.get("/config/users/alice")
        await zk.close()
    assert "Zookeeper connection established" in caplog.text
    assert "planted" not in caplog.text + repr(zk)
    assert "keys of alice" not in caplog.text


async def test_unreachable_server_is_an_error_with_its_address() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionLoss, match=f"no ZooKeeper answered at {address} within 0.3 s"):
        await open_kazoo(address, connect_timeout_ms=300)


async def test_silent_server_is_a_connect_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(ConnectionLoss, match="no ZooKeeper answered"):
            await open_kazoo(address, session_timeout_ms=1000, connect_timeout_ms=300)


@pytest.mark.zookeeper
async def test_server_that_accepts_without_responding_is_left_before_session_ends(tmp_path: Path) -> None:
    """The port may belong to another process briefly, or the server may be frozen."""
    if (reason := why_unavailable()) is not None:
        pytest.skip(f"NO REAL ZOOKEEPER: {reason}")
    async with LocalZooKeeper(data_dir=tmp_path / "zk") as server:
        zk = await open_kazoo(server.hosts, session_timeout_ms=12_000)
        connected, accepted = asyncio.Event(), asyncio.get_running_loop().create_future()
        zk.on_session(lambda event: connected.set() if event is SessionEvent.CONNECTED else None)
        await server.kill()
        async with await asyncio.start_server(
            lambda *streams: accepted.set_result(streams), "127.0.0.1", server.port, reuse_address=True
        ):
            reader, writer = await asyncio.wait_for(accepted, PATIENCE_S)
        async with asyncio.timeout(9):
            await reader.read()
        await server.start()
        async with asyncio.timeout(PATIENCE_S):
            await connected.wait()
        writer.close()
        await zk.close()
