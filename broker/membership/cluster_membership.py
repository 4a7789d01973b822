"""A node's current ZooKeeper session, and the controller candidate that uses it.

When a session expires, the node opens a new one and becomes a candidate again, so both values change at runtime. Only
`broker.node.app` sets them; other parts read them here at each use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.protocol.values import slotted

if TYPE_CHECKING:
    from anabranch.controller.controller import Controller
    from anabranch.controller.zk.session import ZkSession


@slotted
class ClusterMembership:
    """The current session and its candidate (None on a node that is no controller candidate)."""

    session: ZkSession
    controller: Controller | None = None
