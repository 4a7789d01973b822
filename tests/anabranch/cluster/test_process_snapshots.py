"""Snapshots of a cluster of processes are kept by name, and refused before anything is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

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
