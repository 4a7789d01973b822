"""Snapshots of a cluster of processes are kept by name, and refused before anything is stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

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


class Imagined:
    """A cluster of three nodes without processes; two of the nodes run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes = {one: SimpleNamespace(node_id=one, running=one < 3, frozen=False) for one in (1, 2, 3)}
        self.brokers = list(self.nodes.values())
        self.server = SimpleNamespace(data_directory=directory / "zookeeper")
        self.cut_off: list[int] = []
        self.zookeeper_links = SimpleNamespace(is_cut=self.cut_off.__contains__)
        self.done: list[str] = []
        for path in ("zookeeper", "node-1"):
            (directory / path).mkdir()

    @asynccontextmanager
    async def without_zookeeper(self) -> AsyncIterator[None]:
        self.done.append("ZooKeeper stops")
        yield
        self.done.append("ZooKeeper starts")

    async def start(self, node_id: int) -> None:
        self.done.append(f"{node_id} starts")
        self.nodes[node_id].running = True

    async def stop(self, node_id: int) -> None:
        self.done.append(f"{node_id} stops")
        self.nodes[node_id].running = False

    async def wait_brokers(self, count: int) -> None:
        self.done.append(f"{count} are known")

    def snapshots(self) -> ProcessSnapshots:
        return ProcessSnapshots(cast("Any", self), cast("Any", self))


async def test_cluster_runs_again_after_a_copy_that_failed(tmp_path: Path) -> None:
    """The disk may be full, or a file not readable: the snapshot is refused, and its cluster was down."""
    cluster = Imagined(tmp_path)
    snapshots = cluster.snapshots()
    with pytest.raises(SnapshotRefused, match=r"node-2.*No such file"):
        await snapshots.take("before")
    assert [node.running for node in cluster.brokers] == [True, True, False]
    assert snapshots.kept == {} and not list((tmp_path / "snapshots").iterdir()), "no part is left"
    for number in (2, 3):
        (tmp_path / f"node-{number}").mkdir()
    cluster.done.clear()
    assert (await snapshots.take("before")).running == (1, 2)
    assert cluster.done == [
        "2 are known",  # else a node that was killed just before could get the partitions of those that stop
        *("1 stops", "2 stops", "ZooKeeper stops", "ZooKeeper starts", "1 starts", "2 starts", "2 are known"),
    ]

    async def fail(node_id: int) -> None:
        raise OrderRefused(f"node {node_id} ended with 1")

    cluster.start = fail  # type: ignore[method-assign]
    with pytest.raises(SnapshotRefused, match="does not start again: node 1 ended with 1"):
        await snapshots.take("after")


async def test_node_that_is_frozen_or_cut_off_is_named_at_once(tmp_path: Path) -> None:
    """A node that is cut off from ZooKeeper was waited for, then killed, after the caller had given up."""
    cluster = Imagined(tmp_path)
    snapshots = cluster.snapshots()
    (tmp_path / "snapshots" / "before").mkdir(parents=True)
    (tmp_path / "snapshots" / "before" / "snapshot.json").write_text('{"nodes": [1, 2], "running": [1]}')
    cluster.cut_off.append(2)
    for attempt in (snapshots.take, snapshots.restore):
        with pytest.raises(SnapshotRefused, match="node 2 is cut off from ZooKeeper and cannot stop in order; resume"):
            await attempt("before")
    cluster.cut_off.clear()
    cluster.nodes[1].frozen = True
    for attempt in (snapshots.take, snapshots.restore):
        with pytest.raises(SnapshotRefused, match="node 1 is frozen; thaw it first"):
            await attempt("before")
    assert cluster.done == []
