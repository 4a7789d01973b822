"""The rows of nodes in this process: of a whole cluster, or of the one node that an agent controls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from anabranch.dashboard.collectors import nodes, rest
from anabranch.dashboard.collectors.gates import GateCollector
from anabranch.dashboard.collectors.groups import GroupCollector
from anabranch.dashboard.collectors.topics import TopicCollector
from anabranch.dashboard.traffic import Traffic

if TYPE_CHECKING:
    from anabranch.broker.node.app import Node
    from anabranch.clock.cluster_clock import ClusterClock
    from anabranch.cluster.cluster_view import ClusterView
    from anabranch.dashboard.row_source import Tell
    from anabranch.dashboard.state_delta import StateSheet
    from anabranch.faults.active_rule import RuleRow


class ClusterRows:
    """Reads the nodes directly, between two events of the loop.

    Args:
        cluster: The nodes.
        tell: See `Tell`.
        clock: The cluster's clock, if it has its own.
        rules: Returns the rows of all rules.
        has_all: Whether these are all nodes of the cluster. Some nodes alone do not know which gates are closed.
    """

    def __init__(
        self,
        cluster: ClusterView,
        tell: Tell,
        *,
        clock: ClusterClock | None = None,
        rules: Callable[[], Iterable[RuleRow]] = tuple,
        has_all: bool = True,
    ) -> None:
        self._cluster = cluster
        self._tell = tell
        self._clock = clock
        self._rules = rules
        self._topics = TopicCollector(cluster)
        self._groups = GroupCollector(cluster, tell)
        self._gates = GateCollector(tell) if has_all else None
        self._traffic: Traffic | None = None
        self._hooked = False

    async def refresh(self) -> None:
        """Do nothing: the nodes are in this process."""

    def collect(self, sheet: StateSheet) -> None:
        """See RowSource."""
        nodes.collect_nodes(self._cluster, sheet)
        self._topics.collect(sheet)
        self._groups.collect(sheet)
        if self._gates is not None:
            self._gates.collect(sheet)
        rest.collect_resizes(self._cluster, sheet)
        rest.collect_transactions(self._cluster, sheet)
        rest.collect_rules(self._rules(), sheet)
        rest.collect_clock(self._clock, sheet)

    def open(self) -> None:
        """See RowSource."""
        self._traffic = Traffic(asyncio.get_running_loop().time, self._tell)
        if not self._hooked:
            self._hooked = True
            self._cluster.on_node(self._on_node)
        else:
            for node in self._cluster.nodes.values():
                self._on_node(node)

    def close(self) -> None:
        """See RowSource."""
        if self._traffic is not None:
            self._traffic.stop()
            self._traffic = None

    def take_traffic(self) -> dict[str, Any] | None:
        """See RowSource."""
        return None if self._traffic is None else self._traffic.take()

    def _on_node(self, node: Node) -> None:
        if self._traffic is not None:
            self._traffic.watch(node)
