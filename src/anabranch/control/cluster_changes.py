"""Wakes the control plane's waits when something changes that their conditions depend on.

Nodes notify of new metadata and new leaders; partitions of log, high watermark and ISR changes; coordinators of changes
in groups and share partitions. A wait is woken only by its dependencies, and nothing is evaluated in between. Listeners
only set a flag, because partitions and coordinators notify in the middle of a change.
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
    """The dependencies of a condition, besides metadata, nodes and controllers, which wake every wait."""

    topic: str = ""
    """The topic whose partitions matter."""
    all_topics: bool = False
    """Whether the partitions of all topics matter."""
    group: str = ""
    """The group that matters, with all partitions: its lag depends on their start and end offsets."""


class ClusterChanges:
    """The waits for one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.waits: dict[PendingWait, None] = {}
        cluster.on_node(self._watch)

    def _watch(self, node: Node) -> None:
        node.services.metadata.on_change(self._on_change)  # includes a new controller
        node.services.replicas.on_leader(self._on_change)
        self._on_change()

    def _on_change(self, *_: Any) -> None:
        for wait in self.waits:
            wait.on_change()

    def listen_to_groups(self, node: Node) -> None:
        """Listen to the groups of a node's coordinators."""
        node.services.groups.listeners[self._on_group] = None
        shares = node.services.broker.shares.built if node.services.broker is not None else None
        if shares is not None:
            shares.coordinator.listeners[self._on_group] = None

    def _on_group(self, group_id: str) -> None:
        for wait in self.waits:
            if wait.depends_on.group == group_id:
                wait.on_change()


_changes: Final[WeakKeyDictionary[Cluster, ClusterChanges]] = WeakKeyDictionary()


def changes_of(cluster: Cluster) -> ClusterChanges:
    """The waits of a cluster; the first call registers the listeners."""
    if cluster not in _changes:
        _changes[cluster] = ClusterChanges(cluster)
    return _changes[cluster]


class PendingWait:
    """One wait, which listens to the partitions that it depends on."""

    def __init__(self, changes: ClusterChanges, depends_on: Dependencies) -> None:
        self.depends_on = depends_on
        self._changes = changes
        self._changed = asyncio.Event()

    def on_change(self) -> None:
        """Wake the wait: something has changed."""
        self._changed.set()

    def listen(self, cluster: Cluster) -> None:
        """Let changes from now on wake this wait. Partitions notify once: call this before each evaluation."""
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

    async def wait_changed(self) -> None:
        """Wait until something has changed since `listen`."""
        await self._changed.wait()

    def end(self, cluster: Cluster) -> None:
        """Remove the listeners."""
        self._changes.waits.pop(self, None)
        for node in cluster.nodes.values():
            for partition in node.services.replicas.partitions():
                partition.listeners.pop(self, None)
