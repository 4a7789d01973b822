"""Schedules of the swarm in which all work that yields to the event loop does so after each element.

Requests and periodic work about thousands of partitions yield after some dozens or hundreds. The topics of the
simulation are smaller: without this, no fault would meet such work between two of its steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Final
from unittest import mock

from anabranch.broker.coordinators.groups import group_offsets
from anabranch.broker.handlers import produce
from anabranch.broker.membership import controller_fence
from anabranch.broker.network import request_processor
from anabranch.broker.replication import fetch_reader, lagging_replicas, replica_maintenance, session_fetch_reader
from anabranch.broker.storage import log_manager
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.controller import requests
from tests.sim.schedule import Verdict
from tests.sim.swarm import SwarmSchedule

STEPS: Final[tuple[tuple[ModuleType, str, int], ...]] = (
    (controller_fence, "ROWS_AT_ONCE", 1),
    (fetch_reader, "PARTITIONS_PER_STEP", 1),
    (group_offsets, "ELEMENTS_PER_YIELD", 0),
    (lagging_replicas, "PARTITIONS_PER_STEP", 1),
    (log_manager, "LOGS_PER_STEP", 1),
    (produce, "ELEMENTS_PER_READING", 0),
    (replica_maintenance, "STEP", 1),
    (request_processor, "REQUESTS_PER_STEP", 1),
    (requests, "PARTITIONS_PER_REQUEST", 1),
    (session_fetch_reader, "PARTITIONS_PER_STEP", 1),
)
"""Module, the name of the size of its steps, and the smallest one."""


@contextlib.contextmanager
def small_steps() -> Iterator[None]:
    """Let all steps have one element."""
    with ExitStack() as stack:
        for module, name, size in STEPS:
            stack.enter_context(mock.patch.object(module, name, size))
        stack.enter_context(mock.patch.object(YieldBudget, "is_spent", lambda _budget, _elements=1: True))
        yield


class SmallStepsSchedule(SwarmSchedule):
    """A schedule of the swarm, in small steps."""

    def run(self) -> Verdict:
        with small_steps():
            return super().run()
