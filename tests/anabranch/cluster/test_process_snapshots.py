"""Snapshots of a cluster of processes are kept by name, and refused before anything is stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.cluster.control_socket import OrderRefused
from anabranch.cluster.process_registry import LauncherSocket
from anabranch.cluster.process_snapshots import ProcessSnapshots, SnapshotRefused
from anabranch.cluster.processes import ProcessCluster


def snapshots_of(directory: Path) -> ProcessSnapshots:
    """The snapshots of a cluster that does not run, on a ZooKeeper of others."""
    cluster = ProcessCluster(1, zookeeper="127.0.0.1:1", directory=directory)
    return ProcessSnapshots(cluster, LauncherSocket(cluster, lambda line: None))


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a.partial", "x" * 101])
async def test_name_that_is_no_directory_of_its_own_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SnapshotRefused, match="is no name of a snapshot"):
        await snapshots_of(tmp_path).take(name)


async def test_snapshot_with_a_zookeeper_of_others_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SnapshotRefused, match="was not started by this cluster"):
        await snapshots_of(tmp_path).take("before")


async def test_kept_snapshots_are_complete_ones_and_can_be_removed(tmp_path: Path) -> None:
    for name in ("before", "after.partial"):
        path = tmp_path / "snapshots" / name
        (path / "node-1").mkdir(parents=True)
        (path / "snapshot.json").write_text('{"nodes": [1, 2], "running": [1]}')
    snapshots = snapshots_of(tmp_path)
    (one,) = snapshots.kept.values()
    assert (one.name, one.nodes, one.running) == ("before", (1, 2), (1,))
    await snapshots.remove("before")
    assert snapshots.kept == {}
    with pytest.raises(KeyError):
        await snapshots.remove("before")


class StoppedNode(SimpleNamespace):
    """A node of one cluster, whose process is imagined."""

    async def stop(self) -> None:
        self.running = False


async def test_cluster_runs_again_after_a_copy_that_failed(tmp_path: Path) -> None:
    """The disk may be full, or a file not readable: the snapshot is refused, and its cluster was down."""
    nodes = {number: StoppedNode(node_id=number, running=number < 3, frozen=False) for number in (1, 2, 3)}
    (tmp_path / "node-1").mkdir()
    (tmp_path / "zookeeper").mkdir()
    had_zookeeper = []

    @asynccontextmanager
    async def without_zookeeper() -> AsyncIterator[None]:
        had_zookeeper.append(False)
        yield
        had_zookeeper.append(True)

    async def start(node_id: int) -> None:
        assert had_zookeeper[-1]
        nodes[node_id].running = True

    async def wait_brokers(count: int) -> None:
        assert count == 2

    server = SimpleNamespace(data_directory=tmp_path / "zookeeper")
    cluster: Any = SimpleNamespace(directory=tmp_path, server=server, nodes=nodes, brokers=list(nodes.values()))
    cluster.without_zookeeper, cluster.wait_brokers = without_zookeeper, wait_brokers
    launcher: Any = SimpleNamespace(start=start)
    snapshots = ProcessSnapshots(cluster, launcher)
    with pytest.raises(SnapshotRefused, match=r"node-2.*No such file"):
        await snapshots.take("before")
    assert [node.running for node in nodes.values()] == [True, True, False]
    assert snapshots.kept == {} and not list((tmp_path / "snapshots").iterdir()), "no part is left"
    for number in (2, 3):
        (tmp_path / f"node-{number}").mkdir()
    assert (await snapshots.take("before")).running == (1, 2)

    async def fail(node_id: int) -> None:
        raise OrderRefused(f"node {node_id} ended with 1")

    launcher.start = fail
    with pytest.raises(SnapshotRefused, match="does not start again: node 1 ended with 1"):
        await snapshots.take("after")
