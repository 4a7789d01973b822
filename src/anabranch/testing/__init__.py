"""Fixtures and helpers for tests of other projects: clusters in a separate process, and their control.

    from anabranch.testing import Clusters, RunningCluster, TopicRow

A class whose name ends with `Row` is the type of a dictionary that the control plane returns. Names are imported when
they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.clients.streams.topology_test_driver import SentRecord, TopologyTestDriver
    from anabranch.control.client import ControlClient
    from anabranch.control.clock_client import ClockClient
    from anabranch.control.clock_routes import ClockRow
    from anabranch.control.control_error import ControlError
    from anabranch.control.events import EventRow
    from anabranch.control.fault_client import FaultsClient, RuleClient
    from anabranch.control.journal_client import JournalClient
    from anabranch.control.node_control import NodeControl
    from anabranch.control.otlp import PointRow
    from anabranch.control.snapshots_client import SnapshotsClient
    from anabranch.control.state import (
        ClusterStateRow,
        GenerationRow,
        GroupRow,
        NodeRow,
        OffsetRow,
        PartitionRow,
        ReplicaRow,
        TopicRow,
        TransactionRow,
        WithheldRow,
    )
    from anabranch.control.state_routes import SnapshotRow
    from anabranch.control.states import ForkRow
    from anabranch.control.telemetry import PushRow, TelemetryRow
    from anabranch.control.telemetry_client import TelemetryClient
    from anabranch.control.telemetry_routes import MetricsRow
    from anabranch.control.topic_routes import BinaryContent, RecordRow, StoredRow
    from anabranch.control.wait_conditions import WaitCondition
    from anabranch.faults.active_rule import RuleNeverHit, RuleRow
    from anabranch.faults.rule import Rule
    from anabranch.faults.rule_fields import RuleFields
    from anabranch.journal.entry import ExchangeBytes, ExchangeRow
    from anabranch.journal.query import JournalFilter
    from anabranch.testing.blocking_admin import BlockingAdmin
    from anabranch.testing.clusters import CannotStart, Clusters
    from anabranch.testing.process_clusters import ProcessesUnavailable
    from anabranch.testing.running_cluster import RunningCluster

_HOMES = {
    "BinaryContent": "control.topic_routes",
    "BlockingAdmin": "testing.blocking_admin",
    "CannotStart": "testing.clusters",
    "ClockClient": "control.clock_client",
    "ClockRow": "control.clock_routes",
    "ClusterStateRow": "control.state",
    "Clusters": "testing.clusters",
    "ControlClient": "control.client",
    "ControlError": "control.control_error",
    "EventRow": "control.events",
    "ExchangeBytes": "journal.entry",
    "ExchangeRow": "journal.entry",
    "FaultsClient": "control.fault_client",
    "ForkRow": "control.states",
    "GenerationRow": "control.state",
    "GroupRow": "control.state",
    "JournalClient": "control.journal_client",
    "JournalFilter": "journal.query",
    "MetricsRow": "control.telemetry_routes",
    "NodeControl": "control.node_control",
    "NodeRow": "control.state",
    "OffsetRow": "control.state",
    "PartitionRow": "control.state",
    "PointRow": "control.otlp",
    "ProcessesUnavailable": "testing.process_clusters",
    "PushRow": "control.telemetry",
    "RecordRow": "control.topic_routes",
    "ReplicaRow": "control.state",
    "Rule": "faults.rule",
    "RuleClient": "control.fault_client",
    "RuleFields": "faults.rule_fields",
    "RuleNeverHit": "faults.active_rule",
    "RuleRow": "faults.active_rule",
    "RunningCluster": "testing.running_cluster",
    "SentRecord": "clients.streams.topology_test_driver",
    "SnapshotRow": "control.state_routes",
    "SnapshotsClient": "control.snapshots_client",
    "StoredRow": "control.topic_routes",
    "TelemetryClient": "control.telemetry_client",
    "TelemetryRow": "control.telemetry",
    "TopicRow": "control.state",
    "TopologyTestDriver": "clients.streams.topology_test_driver",
    "TransactionRow": "control.state",
    "WaitCondition": "control.wait_conditions",
    "WithheldRow": "control.state",
}

__all__ = [
    "BinaryContent",
    "BlockingAdmin",
    "CannotStart",
    "ClockClient",
    "ClockRow",
    "ClusterStateRow",
    "Clusters",
    "ControlClient",
    "ControlError",
    "EventRow",
    "ExchangeBytes",
    "ExchangeRow",
    "FaultsClient",
    "ForkRow",
    "GenerationRow",
    "GroupRow",
    "JournalClient",
    "JournalFilter",
    "MetricsRow",
    "NodeControl",
    "NodeRow",
    "OffsetRow",
    "PartitionRow",
    "PointRow",
    "ProcessesUnavailable",
    "PushRow",
    "RecordRow",
    "ReplicaRow",
    "Rule",
    "RuleClient",
    "RuleFields",
    "RuleNeverHit",
    "RuleRow",
    "RunningCluster",
    "SentRecord",
    "SnapshotRow",
    "SnapshotsClient",
    "StoredRow",
    "TelemetryClient",
    "TelemetryRow",
    "TopicRow",
    "TopologyTestDriver",
    "TransactionRow",
    "WaitCondition",
    "WithheldRow",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"anabranch.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
