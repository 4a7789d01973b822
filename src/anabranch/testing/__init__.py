"""Fixtures and helpers for tests of other projects: clusters in a separate process, and their control.

    from anabranch.testing import Clusters, RunningCluster

Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.control.client import ControlClient, NodeControl
    from anabranch.control.clock_client import ClockClient
    from anabranch.control.control_error import ControlError
    from anabranch.control.fault_client import FaultsClient, RuleClient
    from anabranch.control.journal_client import JournalClient
    from anabranch.control.snapshots_client import SnapshotsClient
    from anabranch.control.telemetry_client import TelemetryClient
    from anabranch.faults.active_rule import RuleNeverHit
    from anabranch.faults.rule import Rule
    from anabranch.testing.blocking_admin import BlockingAdmin
    from anabranch.testing.clusters import CannotStart, Clusters
    from anabranch.testing.running_cluster import RunningCluster

_HOMES = {
    "BlockingAdmin": "testing.blocking_admin",
    "CannotStart": "testing.clusters",
    "ClockClient": "control.clock_client",
    "Clusters": "testing.clusters",
    "ControlClient": "control.client",
    "ControlError": "control.control_error",
    "FaultsClient": "control.fault_client",
    "JournalClient": "control.journal_client",
    "NodeControl": "control.client",
    "Rule": "faults.rule",
    "RuleClient": "control.fault_client",
    "RuleNeverHit": "faults.active_rule",
    "RunningCluster": "testing.running_cluster",
    "SnapshotsClient": "control.snapshots_client",
    "TelemetryClient": "control.telemetry_client",
}

__all__ = [
    "BlockingAdmin",
    "CannotStart",
    "ClockClient",
    "Clusters",
    "ControlClient",
    "ControlError",
    "FaultsClient",
    "JournalClient",
    "NodeControl",
    "Rule",
    "RuleClient",
    "RuleNeverHit",
    "RunningCluster",
    "SnapshotsClient",
    "TelemetryClient",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"anabranch.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
