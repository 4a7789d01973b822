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
from anabranch.controller.zk import journal, paths
from anabranch.state.data_directory import JOURNAL
from anabranch.state.snapshot_file import Steps, finish, read_zip

if TYPE_CHECKING:
    from anabranch.controller.zk.tree import ZnodeTree

ABOUT: Final = "anabranch.json"
FORM: Final = 1
BROKER: Final = "broker-"
ABOUT_BYTES_MAX: Final = 1 << 20
LEAD_MS_MAX: Final = 1000 * 86_400_000 * 365


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
        """ZooKeeper's data, for a service of its own. InvalidSnapshot if the lines hold no tree."""
        return finish(self._reading_tree())

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
        return finish(cls.reading(content))

    @classmethod
    def reading(cls, content: bytes, inflated_bytes_max: int | None = None) -> Steps[Self]:
        """Do the same in steps, and refuse what inflates to more than the bound.

        All of it is checked here, so that no cluster stops for a snapshot that cannot be read.
        """
        try:
            found = yield from read_zip(content, inflated_bytes_max)
            snapshot = cls._of(found)
            yield from snapshot._reading_tree()
        except InvalidSnapshot:
            raise
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidSnapshot(f"no snapshot of a cluster: {error}") from None
        return snapshot

    @classmethod
    def _of(cls, found: dict[str, bytes]) -> Self:
        if len(found[ABOUT]) > ABOUT_BYTES_MAX:
            raise InvalidSnapshot(f"no snapshot of a cluster: {ABOUT} is too large")
        about = json.loads(found[ABOUT])
        if about["form"] != FORM:
            raise InvalidSnapshot(f"a snapshot of form {about['form']}; this version reads form {FORM}")
        files: dict[int, dict[str, bytes]] = {int(node_id): {} for node_id in about["nodes"]}
        running, lead_ms = frozenset(map(int, about["running"])), int(about["lead_ms"])
        if not running <= files.keys() or abs(lead_ms) > LEAD_MS_MAX:
            raise InvalidSnapshot(f"no snapshot of a cluster: {ABOUT} contradicts itself")
        for name, data in found.items():
            broker, _, path = name.partition("/")
            if broker.startswith(BROKER):
                files[int(broker.removeprefix(BROKER))][path] = data
        return cls(found[JOURNAL].decode(), files, running, lead_ms)

    def _reading_tree(self) -> Steps[ZnodeTree]:
        try:
            tree = yield from journal.reading(self.zookeeper)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise InvalidSnapshot(f"no snapshot of a cluster: {JOURNAL}: {error}") from None
        for number, (path, node) in enumerate(tree.nodes.items()):
            numbers = (node.czxid, node.mzxid, node.version, node.created)
            if paths.parent(path) not in tree.nodes or not all(type(one) is int for one in numbers):
                raise InvalidSnapshot(f"no snapshot of a cluster: {JOURNAL}: the znode {path[:200]!r} is broken")
            if not number % 1000:
                yield
        return tree


def take_snapshot(tree: ZnodeTree, files: Mapping[int, object], running: frozenset[int], lead_ms: int) -> Snapshot:
    """What is there now, of brokers whose files are in memory."""
    held = {node_id: one.contents() for node_id, one in files.items() if isinstance(one, MemoryFiles)}
    return Snapshot(journal.written(tree), held, running, lead_ms)


def new_tree(tree: ZnodeTree) -> ZnodeTree:
    """ZooKeeper's data of a cluster as new, which is the same cluster to its clients."""
    return journal.read(journal.written(tree, only=("/", "/cluster", "/cluster/id")))
