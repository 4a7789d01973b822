"""Launchers report ended nodes, restart them on request, and tell several clusters apart."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from anabranch.cluster import process_registry as module
from anabranch.cluster.control_socket import OrderRefused, sockets_directory
from anabranch.cluster.node_process import NodeProcess
from anabranch.cluster.process_registry import LauncherSocket, launched_clusters, start_node

PATIENCE_S = 60


@dataclass
class FewNodes:
    """A launcher whose nodes do nothing."""

    directory: Path
    zookeeper: str = "zk:1"
    nodes: dict[int, NodeProcess] = field(default_factory=dict)
    launcher: LauncherSocket | None = None


@contextlib.asynccontextmanager
async def running(
    directory: Path, *ids: int, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[FewNodes, asyncio.Queue[str]]]:
    directory.mkdir()  # noqa: ASYNC240
    cluster = FewNodes(directory, f"{directory.name}:1")
    said: asyncio.Queue[str] = asyncio.Queue()
    for node_id in ids:
        node = NodeProcess(
            node_id, "broker", "h", 1, directory, cluster.zookeeper, {}, module="tests.anabranch.idle_node"
        )
        cluster.nodes[node_id] = node
        await node.start()
        await node.wait_ready()
    # As if each were in a process of its own.
    monkeypatch.setattr(module, "own_socket_path", lambda: sockets_directory() / f"{cluster.nodes[ids[0]].pid}.door")
    door = cluster.launcher = LauncherSocket(cluster, said.put_nowait)
    await door.open()
    try:
        yield cluster, said
    finally:
        await door.close()
        await asyncio.gather(*(node.kill() for node in cluster.nodes.values()))


@pytest.mark.processes
async def test_ended_nodes_are_reported_and_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    relative = os.path.relpath(tmp_path / "a")  # noqa: ASYNC240
    async with (
        asyncio.timeout(PATIENCE_S),
        running(tmp_path / "a", 1, 2, monkeypatch=monkeypatch) as (first, said),
        running(tmp_path / "b", 2, 3, monkeypatch=monkeypatch) as (second, _),
    ):
        assert {one.directory: one.node_ids for one in await launched_clusters()} == {
            str(tmp_path / "a"): [1, 2],
            str(tmp_path / "b"): [2, 3],
        }
        before = first.nodes[2].pid
        await first.nodes[2].kill()
        line = await said.get()
        assert line.startswith(f"node 2 (pid {before}) was killed by signal 9; `anabranch nodes start 2`")
        assert "\n" not in line
        with pytest.raises(OrderRefused, match="several running clusters have a node 2") as unclear:
            await start_node(2)
        assert f"--cluster {tmp_path / 'a'}: nodes 1, 2" in str(unclear.value)
        assert await start_node(2, relative) == f"started node 2 (pid {first.nodes[2].pid})"
        assert first.nodes[2].running and first.nodes[2].pid != before
        await first.nodes[2].kill()
        assert (await said.get()).startswith("node 2 (pid "), "a second life is watched as the first was"
        assert (await start_node(2, "a:1")).startswith("started node 2")
        for node_id, cluster, says in (
            (3, "", "node 3 is running already"),
            (9, "", "no running cluster has a node 9"),
            (1, "b:1", "no running cluster in b:1 has a node 1"),
        ):
            with pytest.raises(OrderRefused, match=says):
                await start_node(node_id, cluster)
        assert second.nodes[2].running and said.empty()


@pytest.mark.processes
async def test_node_that_two_ask_to_start_is_started_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with asyncio.timeout(PATIENCE_S), running(tmp_path / "a", 1, monkeypatch=monkeypatch) as (cluster, said):
        assert cluster.launcher is not None
        await cluster.nodes[1].kill()
        await said.get()
        twice = await asyncio.gather(cluster.launcher.start(1), cluster.launcher.start(1), return_exceptions=True)
        assert twice[0] == cluster.nodes[1].pid
        assert isinstance(twice[1], OrderRefused) and "node 1 is running already" in str(twice[1])


@pytest.mark.processes
async def test_stopping_launcher_reports_no_failed_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with asyncio.timeout(PATIENCE_S), running(tmp_path / "a", 1, monkeypatch=monkeypatch) as (_, said):
        pass
    assert said.empty() and await launched_clusters() == []


@pytest.mark.processes
async def test_node_that_will_be_started_again_is_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot stops all nodes; the launcher told how to start them, which would have disturbed it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with asyncio.timeout(PATIENCE_S), running(tmp_path / "a", 1, monkeypatch=monkeypatch) as (cluster, said):
        assert cluster.launcher is not None
        await cluster.launcher.stop(1)
        assert not cluster.nodes[1].running
        await cluster.launcher.start(1)
        await cluster.nodes[1].kill()
        assert "was killed by signal 9" in await said.get() and said.empty()


async def test_launcher_that_is_stopped_is_left_out_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As by Ctrl-Z: `anabranch nodes list` waited for it without end, and said nothing."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(module, "ANSWER_S", 0.01)
    path = sockets_directory() / f"{os.getpid()}.door"
    accepted = asyncio.Queue[asyncio.StreamWriter]()
    listening = await asyncio.start_unix_server(lambda reader, writer: accepted.put_nowait(writer), path)
    async with asyncio.timeout(PATIENCE_S):
        assert await launched_clusters() == []
        assert f"process {os.getpid()} has a cluster, and does not answer" in caplog.text
        connection = await accepted.get()  # perhaps after the other side has given up
    connection.close()
    await connection.wait_closed()
    listening.close()
