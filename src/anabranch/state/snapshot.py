"""What a cluster holds, at one moment between two events of its loop: ZooKeeper's data and the files of every broker.

It is what would be left if every broker had been killed at that moment: brokers that start from it find their logs,
groups and transactions, and get new epochs, as after a restart. Sessions, connections and what was under way are not in
it.

As bytes it is a zip file that holds what a `--data-dir` would: `zookeeper.journal`, and `broker-1/` with its files.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from anabranch.broker.config.broker_settings import ConfigError
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.controller.zk import journal
from anabranch.state.data_directory import JOURNAL

if TYPE_CHECKING:
    from anabranch.controller.zk.tree import ZnodeTree

ABOUT: Final = "anabranch.json"
FORM: Final = 1
BROKER: Final = "broker-"


class InvalidSnapshot(ConfigError):
    """These bytes hold no snapshot, or one that this version cannot read."""


class NotInMemory(RuntimeError):
    """The cluster keeps its data in a directory: they are not in this process's hands."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a cluster holds."""

    zookeeper: str
    """The lines of `controller.zk.journal`."""
    files: Mapping[int, Mapping[str, bytes]]
    """Broker -> path -> content. A path that ends in "/" is a directory."""
    running: frozenset[int]
    """The brokers that ran: a cluster that goes back to it starts no others. Another cluster starts all."""
    lead_ms: int = 0
    """How far the cluster's time of day was ahead of everybody's."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Every broker, running or not."""
        return tuple(self.files)

    def tree(self) -> ZnodeTree:
        """ZooKeeper's data, for a service of its own."""
        return journal.read(self.zookeeper)

    def files_of(self, node_id: int) -> MemoryFiles:
        """A broker's files, in memory of their own."""
        return MemoryFiles(self.files.get(node_id, {}))

    def to_bytes(self) -> bytes:
        """It as a file."""
        about = {"form": FORM, "nodes": list(self.files), "running": sorted(self.running), "lead_ms": self.lead_ms}
        with io.BytesIO() as target:
            with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                archive.writestr(ABOUT, json.dumps(about))
                archive.writestr(JOURNAL, self.zookeeper)
                for node_id, files in self.files.items():
                    for path, content in files.items():
                        archive.writestr(f"{BROKER}{node_id}/{path}", content)
            return target.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """What `to_bytes` wrote. InvalidSnapshot if these bytes are something else."""
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                about = json.loads(archive.read(ABOUT))
                if about["form"] != FORM:
                    raise InvalidSnapshot(f"a snapshot of form {about['form']}; this version reads form {FORM}")
                files: dict[int, dict[str, bytes]] = {int(node_id): {} for node_id in about["nodes"]}
                for name in archive.namelist():
                    broker, _, path = name.partition("/")
                    if broker.startswith(BROKER):
                        files[int(broker.removeprefix(BROKER))][path] = archive.read(name)
                zookeeper = archive.read(JOURNAL).decode()
                return cls(zookeeper, files, frozenset(about["running"]), int(about["lead_ms"]))
        except (zipfile.BadZipFile, KeyError, TypeError, json.JSONDecodeError) as error:
            raise InvalidSnapshot(f"no snapshot of a cluster: {error}") from None


def take_snapshot(tree: ZnodeTree, files: Mapping[int, object], running: frozenset[int], lead_ms: int) -> Snapshot:
    """What is there now, of brokers whose files are in memory."""
    held = {node_id: one.contents() for node_id, one in files.items() if isinstance(one, MemoryFiles)}
    return Snapshot(journal.written(tree), held, running, lead_ms)


def new_tree(tree: ZnodeTree) -> ZnodeTree:
    """ZooKeeper's data of a cluster as new, which is the same cluster to its clients."""
    return journal.read(journal.written(tree, only=("/", "/cluster", "/cluster/id")))
