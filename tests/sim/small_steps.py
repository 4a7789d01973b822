"""Schedules of the swarm in which all work that yields to the event loop does so after each element.

Requests and periodic work about thousands of partitions yield after some dozens or hundreds. The topics of the
simulation are smaller: without this, no fault would meet such work between two of its steps. A yield also takes a
random time, as on a node with other work. Otherwise simulated time would stand still from the first step to the last,
and no message, lost connection or timer could come in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any, Final
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
LONGEST_YIELD_S: Final = 0.01
"""Half of all yields take less than 0.7 ms."""


@contextlib.contextmanager
def small_steps(rng: random.Random | None = None) -> Iterator[None]:
    """Let all steps have one element, and with `rng` let a time pass between two of them."""
    sleep = asyncio.sleep

    async def take_time(delay_s: float, result: Any = None) -> Any:
        assert rng is not None
        return await sleep(delay_s or LONGEST_YIELD_S * rng.random() ** 4, result)

    with ExitStack() as stack:
        if rng is not None:
            stack.enter_context(mock.patch.object(asyncio, "sleep", take_time))
        for module, name, size in STEPS:
            stack.enter_context(mock.patch.object(module, name, size))
        stack.enter_context(mock.patch.object(YieldBudget, "is_spent", lambda _budget, _elements=1: True))
        yield


class SmallStepsSchedule(SwarmSchedule):
    """A schedule of the swarm, in small steps."""

    def run(self) -> Verdict:
        with small_steps(self.cluster.rng("steps")):
            return super().run()
