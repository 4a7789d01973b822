"""Wakes the waits of the control plane when something changes that their conditions depend on.

Nodes tell of new metadata and new leaders; partitions of their logs, high watermarks and ISRs; coordinators of groups
and of shared partitions. A wait is woken by what it depends on, and nothing is evaluated
meanwhile. Who is told takes a note only, as partitions and coordinators tell in the middle of a change.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from anabranch.broker.node.app import Node
    from anabranch.cluster.in_process import Cluster


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a condition looks at, besides metadata, nodes and controllers, which wake every wait."""

    topic: str = ""
    """The partitions of this topic."""
    all_topics: bool = False
    """The partitions of all topics."""
    group: str = ""
    """This group, and all partitions: its lag depends on where they begin and end."""


class ClusterChanges:
    """The waits for one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.waits: dict[PendingWait, None] = {}
        cluster.on_node(self._watch)

    def _watch(self, node: Node) -> None:
        node.services.metadata.on_change(self._on_change)  # a new controller is in the metadata, too
        node.services.replicas.on_leader(self._on_change)
        self._on_change()

    def _on_change(self, *_: Any) -> None:
        for wait in self.waits:
            wait.stirred()

    def listen_to_groups(self, node: Node) -> None:
        """Have the coordinators of a node tell of their groups."""
        node.services.groups.listeners[self._on_group] = None
        shares = node.services.broker.shares.built if node.services.broker is not None else None
        if shares is not None:
            shares.coordinator.listeners[self._on_group] = None

    def _on_group(self, group_id: str) -> None:
        for wait in self.waits:
            if wait.depends_on.group == group_id:
                wait.stirred()


_changes: Final[WeakKeyDictionary[Cluster, ClusterChanges]] = WeakKeyDictionary()


def changes_of(cluster: Cluster) -> ClusterChanges:
    """The waits for a cluster; what a node tells is heard from the first one on."""
    if cluster not in _changes:
        _changes[cluster] = ClusterChanges(cluster)
    return _changes[cluster]


class PendingWait:
    """One wait, which listens to the partitions that it depends on."""

    def __init__(self, changes: ClusterChanges, depends_on: Dependencies) -> None:
        self.depends_on = depends_on
        self._changes = changes
        self._changed = asyncio.Event()

    def stirred(self) -> None:
        """Something has changed."""
        self._changed.set()

    def listen(self, cluster: Cluster) -> None:
        """Have changes from now on wake this wait. Partitions tell once, so this is called before each look."""
        self._changed.clear()
        self._changes.waits[self] = None
        depends_on = self.depends_on
        for node in cluster.nodes.values():
            if depends_on.group:
                self._changes.listen_to_groups(node)
            every = depends_on.all_topics or depends_on.group
            for partition in node.services.replicas.partitions():
                if every or partition.topic == depends_on.topic:
                    partition.listeners[self] = None

    async def changed(self) -> None:
        """Wait until something has changed since `listen`."""
        await self._changed.wait()

    def end(self, cluster: Cluster) -> None:
        """Listen no more."""
        self._changes.waits.pop(self, None)
        for node in cluster.nodes.values():
            for partition in node.services.replicas.partitions():
                partition.listeners.pop(self, None)
