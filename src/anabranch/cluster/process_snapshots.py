"""Snapshots of a cluster of processes by name: copies of the nodes' directories and of its ZooKeeper's data.

A snapshot is taken while all nodes and ZooKeeper are stopped, so it is consistent. It lies in `snapshots/NAME` of the
cluster's directory. A restore copies it to `restoring` first, and then moves each part to its place. If the launcher
dies before the copy is complete, the old data remains. If it dies later, the next start on the directory moves the
other parts.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.cluster.control_socket import OrderRefused
from anabranch.cluster.interrupted_restore import PARTIAL, RESTORING, finish_restore
from anabranch.cluster.node_process import NodeFailed
from anabranch.state.data_directory import ZOOKEEPER

if TYPE_CHECKING:
    from anabranch.cluster.process_registry import LauncherSocket
    from anabranch.cluster.processes import ProcessCluster

SNAPSHOTS: Final = "snapshots"
ABOUT: Final = "snapshot.json"
NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
BYTES_MAX: Final = 4 << 30
"""The maximum size of all snapshots of a cluster."""
FREE_BYTES_MIN: Final = 256 << 20
"""The free space that a copy leaves on the disk."""
BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`; files of indexes are sparse."""


class SnapshotRefused(Exception):
    """A snapshot cannot be taken or restored; the message says why."""


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot on disk."""

    name: str
    nodes: tuple[int, ...]
    """The nodes whose data it has."""
    running: tuple[int, ...]
    """The nodes that ran."""
    size_bytes: int


class ProcessSnapshots:
    """The snapshots of one cluster, whose launcher is this process."""

    def __init__(self, cluster: ProcessCluster, launcher: LauncherSocket) -> None:
        self._cluster = cluster
        self._launcher = launcher

    @property
    def kept(self) -> dict[str, StoredSnapshot]:
        """All snapshots by name."""
        found = sorted(self._root.glob(f"*/{ABOUT}"))
        return {path.parent.name: _stored(path.parent) for path in found if not path.parent.name.endswith(PARTIAL)}

    async def take(self, name: str) -> StoredSnapshot:
        """Take a snapshot, and replace one of the same name; the cluster restarts. Raises SnapshotRefused."""
        if NAME.fullmatch(name) is None or name.endswith(PARTIAL):
            raise SnapshotRefused(f"{name!r} is no name of a snapshot: use letters, digits, dots, - and _")
        server = self._zookeeper_data()
        parts = {f"node-{node.node_id}": self._directory / f"node-{node.node_id}" for node in self._cluster.brokers}
        parts[ZOOKEEPER] = server
        others = sum(one.size_bytes for one in self.kept.values() if one.name != name)
        self._check_space(sum(map(_size_bytes, parts.values())), others)
        self._check_can_stop()
        partial = self._root / f"{name}{PARTIAL}"
        await _remove(partial)
        partial.mkdir(parents=True, mode=0o700)
        await self._wait_until_the_dead_are_noticed()
        running = [node.node_id for node in self._cluster.nodes.values() if node.running]
        failure: SnapshotRefused | None = None
        async with self._stopped(running):
            try:
                for part, path in parts.items():
                    await _copy(path, partial / part)
            except SnapshotRefused as error:  # the cluster starts again
                failure = error
        if failure is not None:
            await _remove(partial)
            raise failure
        about = {"nodes": [node.node_id for node in self._cluster.brokers], "running": running}
        (partial / ABOUT).write_text(json.dumps(about))
        await _remove(self._root / name)
        partial.rename(self._root / name)
        return _stored(self._root / name)

    async def restore(self, name: str) -> None:
        """Restore a snapshot; the cluster restarts with the nodes that ran then. Raises SnapshotRefused or KeyError."""
        snapshot = self.kept[name]
        server = self._zookeeper_data()
        self._check_space(snapshot.size_bytes, 0)
        self._check_can_stop()
        partial = self._directory / f"{RESTORING}{PARTIAL}"
        await _remove(partial)
        await _copy(self._root / name, partial)
        (partial / ABOUT).unlink()
        async with self._stopped(snapshot.running):
            partial.rename(self._directory / RESTORING)
            finish_restore(self._directory, server)

    async def remove(self, name: str) -> None:
        """Remove a snapshot. Raises KeyError."""
        _ = self.kept[name]
        await _remove(self._root / name)

    @asynccontextmanager
    async def _stopped(self, running: Collection[int]) -> AsyncIterator[None]:
        """A block during which all nodes and ZooKeeper are stopped; afterwards `running` nodes run."""
        cluster = self._cluster
        self._check_can_stop()
        await asyncio.gather(*(self._launcher.stop(node.node_id) for node in cluster.nodes.values() if node.running))
        async with cluster.without_zookeeper():
            yield
        try:
            await asyncio.gather(*(self._launcher.start(one) for one in running))
            brokers = [node for node in cluster.brokers if node.running]
            if brokers:
                await cluster.wait_brokers(len(brokers))
        except (OrderRefused, NodeFailed) as error:
            raise SnapshotRefused(f"the cluster does not start again: {error}") from None

    def _check_can_stop(self) -> None:
        nodes, links = self._cluster.nodes.values(), self._cluster.zookeeper_links
        if frozen := [str(node.node_id) for node in nodes if node.frozen]:
            raise SnapshotRefused(f"node {', '.join(frozen)} is frozen; thaw it first")
        if cut_off := [str(node.node_id) for node in nodes if links is not None and links.is_cut(node.node_id)]:
            raise SnapshotRefused(
                f"node {', '.join(cut_off)} is cut off from ZooKeeper and cannot stop in order; resume its session "
                "first"
            )

    async def _wait_until_the_dead_are_noticed(self) -> None:
        """Else the brokers that stop would hand their partitions to one that was killed just before."""
        brokers = [node for node in self._cluster.brokers if node.running]
        if not brokers:
            return
        try:
            await self._cluster.wait_brokers(len(brokers))
        except NodeFailed as error:
            raise SnapshotRefused(str(error)) from None

    @property
    def _directory(self) -> Path:
        return self._cluster.directory

    @property
    def _root(self) -> Path:
        return self._directory / SNAPSHOTS

    def _zookeeper_data(self) -> Path:
        server = self._cluster.server
        if server is None:
            raise SnapshotRefused(
                f"the ZooKeeper at {self._cluster.zookeeper} was not started by this cluster, so its data cannot be "
                "copied; leave --zookeeper out, or use --zookeeper local"
            )
        return server.data_directory

    def _check_space(self, size_bytes: int, others: int) -> None:
        if size_bytes + others > BYTES_MAX:
            raise SnapshotRefused(
                f"snapshots have at most {BYTES_MAX >> 20} MiB; this one would have {size_bytes >> 20}, and the others "
                f"have {others >> 20}"
            )
        free = shutil.disk_usage(self._directory).free
        if size_bytes + FREE_BYTES_MIN > free:
            raise SnapshotRefused(
                f"{self._directory} has {free >> 20} MiB free, and {size_bytes >> 20} are to be copied"
            )


def _stored(path: Path) -> StoredSnapshot:
    about = json.loads((path / ABOUT).read_text())
    return StoredSnapshot(path.name, tuple(about["nodes"]), tuple(about["running"]), _size_bytes(path))


def _size_bytes(path: Path) -> int:
    """The bytes on disk below a directory."""
    return sum(one.lstat().st_blocks * BLOCK_BYTES for one in path.rglob("*"))


async def _copy(source: Path, target: Path) -> None:
    """Copy a directory in another process. Raises SnapshotRefused."""
    await _run("cp", "-a", str(source), str(target))


async def _remove(path: Path) -> None:
    await _run("rm", "-rf", str(path))


async def _run(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    if process.returncode:
        raise SnapshotRefused(errors.decode(errors="replace").strip() or f"{words[0]} failed")
