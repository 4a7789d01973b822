"""A cluster's data at one moment between two events of its loop: ZooKeeper's tree and every broker's files.

A snapshot holds what killing every broker at that moment would leave: brokers that start from it find their logs,
groups and transactions, and get new epochs, as after a restart. It holds no sessions, connections or requests in
flight.

As bytes it is a zip file with the content of a `--data-dir`: `zookeeper.journal`, and `broker-1/` with its files.
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
    """The bytes hold no snapshot, or one that this version cannot read."""


class NotInMemory(RuntimeError):
    """The cluster keeps its data in a directory, not in memory."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The data of a cluster."""

    zookeeper: str
    """The lines of the ZooKeeper journal (`controller.zk.journal`)."""
    files: Mapping[int, Mapping[str, bytes]]
    """Broker -> path -> content. A path that ends in "/" is a directory."""
    running: frozenset[int]
    """The running brokers: a restore starts no others. A new cluster starts all."""
    lead_ms: int = 0
    """How far the cluster's time of day was ahead of real time, in milliseconds."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Every broker, running or not."""
        return tuple(self.files)

    def tree(self) -> ZnodeTree:
        """ZooKeeper's data, as a new tree. InvalidSnapshot if the lines hold no tree."""
        return finish(self._reading_tree())

    def files_of(self, node_id: int) -> MemoryFiles:
        """A copy of a broker's files, in memory."""
        return MemoryFiles(self.files.get(node_id, {}))

    def to_bytes(self) -> bytes:
        """Encode the snapshot as a zip file."""
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
        """Decode a snapshot. InvalidSnapshot if the bytes hold none."""
        return finish(cls.reading(content))

    @classmethod
    def reading(cls, content: bytes, inflated_bytes_max: int | None = None) -> Steps[Self]:
        """Decode a snapshot in steps, and refuse one that inflates to more than the bound.

        It is checked completely before a cluster stops to restore it.
        """
        try:
            found = yield from read_zip(content, inflated_bytes_max)
            snapshot = cls._of(found)
            yield from snapshot._reading_tree()
        except InvalidSnapshot:
            raise
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidSnapshot(f"not a snapshot: {error}") from None
        return snapshot

    @classmethod
    def _of(cls, found: dict[str, bytes]) -> Self:
        if len(found[ABOUT]) > ABOUT_BYTES_MAX:
            raise InvalidSnapshot(f"not a snapshot: {ABOUT} is too large")
        about = json.loads(found[ABOUT])
        if about["form"] != FORM:
            raise InvalidSnapshot(f"a snapshot of format {about['form']}; this version reads format {FORM}")
        files: dict[int, dict[str, bytes]] = {int(node_id): {} for node_id in about["nodes"]}
        running, lead_ms = frozenset(map(int, about["running"])), int(about["lead_ms"])
        if not running <= files.keys() or abs(lead_ms) > LEAD_MS_MAX:
            raise InvalidSnapshot(f"not a snapshot: {ABOUT} is inconsistent")
        for name, data in found.items():
            broker, _, path = name.partition("/")
            if broker.startswith(BROKER):
                files[int(broker.removeprefix(BROKER))][path] = data
        return cls(found[JOURNAL].decode(), files, running, lead_ms)

    def _reading_tree(self) -> Steps[ZnodeTree]:
        try:
            tree = yield from journal.reading(self.zookeeper)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise InvalidSnapshot(f"not a snapshot: {JOURNAL}: {error}") from None
        for number, (path, node) in enumerate(tree.nodes.items()):
            numbers = (node.czxid, node.mzxid, node.version, node.created, node.pzxid, node.ctime_ms, node.mtime_ms)
            if paths.parent(path) not in tree.nodes or not all(type(one) is int for one in numbers):
                raise InvalidSnapshot(f"not a snapshot: {JOURNAL}: the znode {path[:200]!r} is broken")
            if not number % 1000:
                yield
        return tree


def take_snapshot(tree: ZnodeTree, files: Mapping[int, object], running: frozenset[int], lead_ms: int) -> Snapshot:
    """Take a snapshot of brokers whose files are in memory."""
    held = {node_id: one.contents() for node_id, one in files.items() if isinstance(one, MemoryFiles)}
    return Snapshot(journal.to_lines(tree), held, running, lead_ms)


def new_tree(tree: ZnodeTree) -> ZnodeTree:
    """The tree of a new cluster with the same cluster id."""
    return journal.read(journal.to_lines(tree, only=("/", "/cluster", "/cluster/id")))
