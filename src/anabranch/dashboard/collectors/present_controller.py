"""Tells the active controller from a former one, which still believes that it is active.

A frozen node does not learn that it was replaced. Its controller epoch is lower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.cluster.cluster_view import ClusterView
    from anabranch.controller.controller import Controller


def present_controller(cluster: ClusterView) -> Controller | None:
    """Return the active controller; None if it is no node of this process."""
    controllers = [node.controller for node in cluster.nodes.values() if node.controller is not None]
    return max((one for one in controllers if one.active), key=lambda one: one.epoch, default=None)
