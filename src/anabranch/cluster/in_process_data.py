"""The data of a cluster in one process: its ZooKeeper, and the files of each broker.

It is in memory, or in a data directory, which the next start reads. A snapshot has the data in memory. A restore
replaces the whole object, so that the previous data stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.broker.storage.os_files import files_of
from anabranch.controller.zk.journal import JournaledTree
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.state.data_directory import JOURNAL, refuse_other_form

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.storage.files import Files
    from anabranch.state.snapshot import Snapshot


class InProcessData:
    """ZooKeeper and the files of the brokers."""

    def __init__(self, data_dir: str | Path | None = None) -> None:
        if data_dir is not None:
            refuse_other_form(data_dir, processes=False)
        self._journal = None if data_dir is None else JournaledTree(Path(data_dir) / JOURNAL)
        self.zookeeper = MemoryZooKeeper(self._journal)
        self.files: dict[int, Files | Mapping[str, Files]] = {}
        self.down: frozenset[int] = frozenset()
        """The brokers that stay down when the cluster starts."""

    def hold(self, snapshot: Snapshot, node_ids: tuple[int, ...], *, every_broker: bool = False) -> None:
        """Hold the data of a snapshot. Raises `InvalidSnapshot` if it has other brokers, or cannot be read.

        Brokers that were down stay down, unless `every_broker` is true.
        """
        if snapshot.node_ids != node_ids:
            from anabranch.state.snapshot import InvalidSnapshot

            raise InvalidSnapshot(f"the snapshot has brokers {snapshot.node_ids}; this cluster has {node_ids}")
        self.zookeeper = MemoryZooKeeper(snapshot.tree())
        self.files = {node_id: snapshot.files_of(node_id) for node_id in node_ids}
        self.down = frozenset() if every_broker else frozenset(node_ids) - snapshot.running

    def files_of(self, settings: BrokerSettings) -> Files | Mapping[str, Files]:
        """Return the files of a broker, which exist from its first start on."""
        if settings.node_id not in self.files:
            self.files[settings.node_id] = files_of(settings.directories)
        return self.files[settings.node_id]

    def check_in_memory(self) -> None:
        """Raise `NotInMemory` if the data is in a directory."""
        if self._journal is not None:
            from anabranch.state.snapshot import NotInMemory

            raise NotInMemory("this cluster keeps its data in a directory: stop it, and use copies of the directory")

    def snapshot(self, running: frozenset[int], lead_ms: int) -> Snapshot:
        """Take a snapshot. Raises `NotInMemory`."""
        from anabranch.state.snapshot import take_snapshot

        self.check_in_memory()
        return take_snapshot(self.zookeeper.tree, self.files, running, lead_ms)

    def clear(self) -> None:
        """Return to the state before the first start; clients find the same cluster id."""
        from anabranch.state.snapshot import new_tree

        self.zookeeper = MemoryZooKeeper(new_tree(self.zookeeper.tree))
        self.files = {}
        self.down = frozenset()

    def close(self) -> None:
        """Close the journal of a data directory."""
        if self._journal is not None:
            self._journal.close()
