"""Collects nodes for the dashboard: their state, roles, epochs and sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.controller.zk.memory import Link, MemorySession
from anabranch.dashboard.collectors.present_controller import present_controller

if TYPE_CHECKING:
    from anabranch.broker.node.app import Node
    from anabranch.cluster.cluster_view import ClusterView
    from anabranch.dashboard.state_delta import StateSheet


def collect_nodes(cluster: ClusterView, sheet: StateSheet) -> None:
    """Put a row for each node, running or not."""
    for node_id in cluster.node_ids:
        host, port = cluster.address(node_id)
        row: dict[str, Any] = {"node": node_id, "host": host, "port": port, "state": "dead"}
        node = cluster.nodes.get(node_id)
        if node is not None:
            row |= _running(cluster, node)
        sheet.put(f"node/{node_id}", row)


def _running(cluster: ClusterView, node: Node) -> dict[str, Any]:
    services, controller, session = node.services, node.controller, node.services.session
    link = session.link if isinstance(session, MemorySession) else Link.CONNECTED
    held = not isinstance(session, MemorySession) or session.is_held
    return {
        "state": "frozen" if cluster.is_frozen(node.settings.node_id) else "alive",
        "rack": node.settings.rack,
        "roles": [name for name in ("broker", "controller") if getattr(node.settings, f"is_{name}")],
        "broker_epoch": services.fence.broker_epoch,
        "session": f"{session.session_id:#x}",
        "link": link.value if held else "expired",
        "controller": controller is not None and controller is present_controller(cluster),
        "controller_epoch": 0 if controller is None else controller.epoch,
        "connections": node.server.connection_count,
    }
