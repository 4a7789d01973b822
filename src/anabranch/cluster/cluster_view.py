"""The part of a cluster from which its state is read: the nodes of this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from anabranch.broker.node.app import Node


class ClusterView(Protocol):
    """The nodes of a cluster that run in this process: all of them, or one."""

    @property
    def nodes(self) -> Mapping[int, Node]:
        """The running nodes by id."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of the nodes, running or not."""

    def address(self, node_id: int) -> tuple[str, int]:
        """The advertised host and port of a node. KeyError if no node has this id."""

    def is_frozen(self, node_id: int) -> bool:
        """Whether a node is running and frozen."""

    def on_node(self, listener: Callable[[Node], None]) -> None:
        """Call `listener(node)` for every running node, and for each node that starts later."""
