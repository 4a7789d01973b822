"""A blocking client for the nodes of a cluster, for synchronous Python tests.

control.nodes[2].kill()
with control.nodes[3].frozen():
    ...                                     # node 3 keeps its connections, and sends nothing
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.protocol.suggestion import suggest_arguments

if TYPE_CHECKING:
    from anabranch.control.state import NodeRow

Ask = Callable[..., Any]


@suggest_arguments
@dataclass(frozen=True, slots=True)
class NodeControl:
    """One node of the cluster."""

    _ask: Ask
    node_id: int

    @property
    def running(self) -> bool:
        """Whether the node runs now."""
        rows: list[NodeRow] = self._ask("GET", "/v1/nodes")
        return next(bool(row["running"]) for row in rows if row["node"] == self.node_id)

    def kill(self) -> None:
        """Kill the node abruptly. Like all actions, raises ControlError if it is impossible now."""
        self._do("kill")

    @contextlib.contextmanager
    def killed(self) -> Iterator[None]:
        """A block at whose start the node is killed; at its end the node is restarted if it is down."""
        self.kill()
        try:
            yield
        finally:
            if not self.running:
                self.start()

    def stop(self) -> None:
        """Stop the node in order: its leaderships move to other nodes first."""
        self._do("stop")

    def start(self) -> None:
        """Start the node again, with its port and data, and wait until all nodes know it."""
        self._do("start")

    def freeze(self) -> None:
        """Freeze the node: it keeps its connections, and sends nothing."""
        self._do("freeze")

    def thaw(self) -> None:
        """Resume the frozen node; its ZooKeeper session may have expired."""
        self._do("thaw")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """A block during which the node is frozen."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def shift_clock(self, offset: str | float) -> None:
        """Set the node's time of day ahead ("5m", or seconds) or behind ("-30s"), also after restarts; 0 ends it."""
        self._ask("POST", f"/v1/nodes/{self.node_id}/clock", {"offset": offset})

    def expire_session(self) -> None:
        """Expire the node's ZooKeeper session; the node runs on, and registers again."""
        self._do("session/expire")

    def suspend_session(self) -> None:
        """Disconnect the node from ZooKeeper until `resume_session`."""
        self._do("session/suspend")

    def delay_session(self, delay: str | float) -> None:
        """Delay what the node sends to ZooKeeper and gets from it ("200ms", or seconds), until `resume_session`."""
        self._ask("POST", f"/v1/nodes/{self.node_id}/session/delay", {"delay": delay})

    def resume_session(self) -> None:
        """Reconnect the node to ZooKeeper, without delay."""
        self._do("session/resume")

    def _do(self, what: str) -> None:
        self._ask("POST", f"/v1/nodes/{self.node_id}/{what}")


class Nodes(dict[int, NodeControl]):
    """The nodes of a cluster by id."""

    def __missing__(self, node_id: int) -> NodeControl:
        raise KeyError(f"no node {node_id!r}; there are {', '.join(map(str, self))}")
