"""A wall clock for coordinators under test that a pause of the machine cannot advance."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Final

from tests.broker.replication.replica_cluster import NOW_MS, ReplicaCluster

STEP_MS_MAX: Final = 20


class SteadyClock:
    """Milliseconds that follow the loop's, in steps of at most 20: a machine's pause makes no timer late."""

    def __init__(self) -> None:
        self._now_ms = NOW_MS
        self._seen_ms = 0

    def __call__(self) -> int:
        loop_ms = int(asyncio.get_running_loop().time() * 1000)
        self._now_ms += min(loop_ms - self._seen_ms, STEP_MS_MAX)
        self._seen_ms = loop_ms
        return self._now_ms


class SteadyCluster(ReplicaCluster):
    """A replica cluster whose wall clock can be moved forward."""

    late_ms: int = 0
    """Moves the wall clock forward."""

    @cached_property
    def steady_ms(self) -> SteadyClock:
        return SteadyClock()

    def clock_ms(self) -> int:
        return self.steady_ms() + self.late_ms
