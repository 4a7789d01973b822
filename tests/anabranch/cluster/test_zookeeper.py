"""A local ZooKeeper starts without installation, restarts after a crash, or names what is missing."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from anabranch.clients.directory_lock import DirectoryInUse
from anabranch.cluster import zookeeper
from anabranch.cluster.zookeeper import LocalZooKeeper, ZooKeeperUnavailable, free_port, why_unavailable
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.controller.zk.session import SessionEvent
from anabranch.spark_jobs.java import Java, JavaMissing


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


def test_missing_java_is_reported_with_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def missing() -> Java:
        raise JavaMissing("no Java: install it")

    monkeypatch.setattr("anabranch.spark_jobs.java.find", missing)
    reason = why_unavailable()
    assert reason == (
        "a local ZooKeeper cannot run: no Java: install it; or name a running ensemble with --zookeeper HOST:PORT"
    )
    with pytest.raises(ZooKeeperUnavailable, match="no Java: install it"), LocalZooKeeper():
        pass
    assert list(tmp_path.iterdir()) == [], "what it made is removed"


def test_missing_jars_are_reported_with_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ZooKeeperUnavailable, match=r"pip install 'anabranch\[audit\]'"):
        zookeeper.class_path()
