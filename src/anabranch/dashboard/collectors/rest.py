"""Collects resizes in progress, transactions, fault rules and the cluster's clock for the dashboard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from anabranch.controller import resize
from anabranch.dashboard.collectors.present_controller import present_controller
from anabranch.dashboard.collectors.present_coordinators import present_coordinators
from anabranch.protocol.internal_topics import TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from anabranch.clock.cluster_clock import ClusterClock
    from anabranch.cluster.cluster_view import ClusterView
    from anabranch.controller.model import Topic
    from anabranch.controller.state import ClusterState
    from anabranch.dashboard.state_delta import StateSheet
    from anabranch.faults.active_rule import RuleRow


def collect_resizes(cluster: ClusterView, sheet: StateSheet) -> None:
    """Put a row for each topic with a resize in progress, with its step."""
    rows = {}
    controller = present_controller(cluster)
    state = None if controller is None else controller.state
    if state is not None:
        for name in state.at_work:
            rows[f"resize/{name}"] = _resize(state, state.topics[name])
    sheet.keep("resize", rows)
    for key, row in rows.items():
        sheet.put(key, row)


def _resize(state: ClusterState, topic: Topic) -> dict[str, Any]:
    body = topic.body
    draining = [one for one in sorted(body.assignment) if one >= body.undeleted_partition_count]
    if body.plan is None:
        return {"step": "draining", "generation": body.generation, "draining": draining}
    indices = [list(phase.indices) for phase in resize.phases(body)]
    done = [resize.all_adopted(state, topic, phase) for phase in indices]
    step = "planned" if not done[0] else "prepared" if not all(done) else "fenced"
    plan = body.plan
    return {
        "step": step,
        "generation": plan.generation,
        "before": plan.before,
        "after": plan.after,
        "fenced": sorted(one for phase in indices for one in phase),
        "draining": draining,
    }


def collect_transactions(cluster: ClusterView, sheet: StateSheet) -> None:
    """Put a row for each transactional id that a running coordinator has loaded."""
    keys, is_present = set(), present_coordinators(cluster, TRANSACTION_STATE_TOPIC)
    for node_id, node in cluster.nodes.items():
        broker = node.services.broker
        coordinator = None if broker is None else broker.transactions.built
        for one in () if coordinator is None else coordinator.transactions():
            if not is_present(node_id, one.transactional_id):
                continue
            key = f"transaction/{one.transactional_id}"
            keys.add(key)
            row = {
                "transactional_id": one.transactional_id,
                "coordinator": node_id,
                "state": one.state.title,
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "timeout_ms": one.timeout_ms,
                "started_ms": one.start_ms,
                "partitions": [f"{topic}-{index}" for topic, index in sorted(one.partitions)],
            }
            sheet.put(key, row)
    sheet.keep("transaction", keys)


def collect_rules(rules: Iterable[RuleRow], sheet: StateSheet) -> None:
    """Put a row for each rule, with its hits."""
    rows = {f"rule/{one['name']}": one for one in rules}
    sheet.keep("rule", rows)
    for key, row in rows.items():
        sheet.put(key, row)


def collect_clock(clock: ClusterClock | None, sheet: StateSheet) -> None:
    """Put the state of the cluster's clock; each message has the time itself."""
    if clock is not None:
        sheet.put("clock/", {"pace": clock.scale})
