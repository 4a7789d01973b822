"""One node as a cluster whose state can be read, and the nodes that it knows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.broker.node.app import Node


class NodeView:
    """The cluster as one node sees it; see `ClusterView`."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The node's id."""
        return (self._node.settings.node_id,)

    @property
    def nodes(self) -> Mapping[int, Node]:
        """The node."""
        return {self._node.settings.node_id: self._node}

    def address(self, node_id: int) -> tuple[str, int]:
        """The advertised host and port of the node. KeyError for another one."""
        if node_id not in self.nodes:
            raise KeyError(node_id)
        first = self._node.settings.bound(self._node.server.ports).first_listener
        return first.reachable_host, first.reachable_port(first.port)

    def is_frozen(self, node_id: int) -> bool:
        """False: a stopped process returns no state."""
        return False

    def on_node(self, listener: Callable[[Node], None]) -> None:
        """Call `listener(node)`: a process has the same node as long as it runs."""
        listener(self._node)


class KnownNodes(Collection[int]):
    """The ids of a node and of the brokers in its metadata. It contains every id: a broker may be down."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.node: Node | None = None
        """The node, once it has started."""

    def __contains__(self, node_id: object) -> bool:
        return True

    def __iter__(self) -> Iterator[int]:
        brokers = () if self.node is None else self.node.services.metadata.image.brokers
        return iter(sorted({self._node_id, *brokers}))

    def __len__(self) -> int:
        return len(list(iter(self)))
