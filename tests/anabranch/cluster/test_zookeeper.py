"""A server keeps its data in a crash, and is refused or reported if it cannot run; the program is a real ZooKeeper."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from anabranch.clients.directory_lock import DirectoryInUse
from anabranch.cluster.local_zookeeper import LocalZooKeeper, why_unavailable
from anabranch.cluster.zookeeper import ZooKeeperUnavailable, free_port
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.controller.zk.session import SessionEvent


@pytest.mark.zookeeper
async def test_data_and_sessions_survive_server_crash(tmp_path: Path) -> None:
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(f"NO REAL ZOOKEEPER: {reason}")
    async with LocalZooKeeper(data_dir=tmp_path / "zk") as server:
        assert (tmp_path / "zk").stat().st_mode & 0o777 == 0o700, "credentials are for its user only"
        hosts, pid = server.hosts, server.pid
        zk = await open_kazoo(hosts, session_timeout_ms=40_000)
        with pytest.raises(DirectoryInUse, match=f"process {pid} \\("):
            LocalZooKeeper(data_dir=tmp_path / "zk", port=free_port()).launch()
        await zk.create("/e", b"mine", ephemeral=True)
        again = asyncio.Event()
        zk.on_session(lambda event: again.set() if event is SessionEvent.CONNECTED else None)
        await server.kill()
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        await server.start()
        assert server.hosts == hosts
        async with asyncio.timeout(60):
            await again.wait()
            data, stat = await zk.get("/e")
        assert (data, stat.ephemeral_owner) == (b"mine", zk.session_id)
        await zk.close()
    assert server.pid is None
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)


@pytest.mark.zookeeper
async def test_server_that_cannot_start_is_reported_with_its_output(tmp_path: Path) -> None:
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(f"NO REAL ZOOKEEPER: {reason}")
    (tmp_path / "data").write_text("a file where the data directory should be")
    server = LocalZooKeeper(data_dir=tmp_path)
    with pytest.raises(
        ZooKeeperUnavailable, match=r"(?s)ended immediately with code \d+.*Unable to create data directory"
    ):
        await server.start()
    assert server.pid is None


async def test_port_in_use_is_refused_before_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ZooKeeperUnavailable, match=f"port {port} of 127.0.0.1 is in use"):
            await LocalZooKeeper(port=port).start()
