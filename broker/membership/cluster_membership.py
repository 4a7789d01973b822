"""What ties a node to its cluster at the moment: its ZooKeeper session, and its controller candidate under it.

A session can expire. The node then opens another one and becomes a candidate again under that, so both values change
while the node runs. Only `broker.node.app` changes them; all other parts look them up here each time they need them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.controller.controller import Controller
    from anabranch.controller.zk.session import ZkSession


@dataclass(slots=True)
class ClusterMembership:
    """The live session, and the candidate that runs under it (None on a node that is no controller candidate)."""

    session: ZkSession
    controller: Controller | None = None
