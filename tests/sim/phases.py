"""The phases of a topic's resize, and a wait until one begins.

`planned` and `cutting` take milliseconds, so a fault drawn at random seldom meets them. One that waits for the
beginning of such a phase does.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from anabranch.controller.zk import paths
from tests.sim.clients import TOPIC
from tests.sim.cluster import SimCluster
from tests.sim.zookeeper import Change

PHASES: Final = ("at rest", "planned", "cutting", "gates closed", "draining")
"""Of a resize: requested, leaders adopt it, members wait for earlier key epochs, partitions wait for their removal."""
SHORT: Final = ("planned", "cutting")
"""The phases that only a wait meets. ZooKeeper alone knows them."""


def phase_of(cluster: SimCluster) -> str:
    """The phase of the topic's latest resize."""
    body = cluster.topic(TOPIC)
    if body is None:
        return "at rest"
    if body.plan is not None:
        states = (cluster.state((TOPIC, index)) for index in {*body.assignment, *range(body.plan.after)})
        adopted = any(state is not None and state.generation >= body.plan.generation for state in states)
        return "cutting" if adopted else "planned"
    if any(_is_gated(application) for application in cluster.applications.values()):
        return "gates closed"
    return "draining" if len(body.assignment) > body.undeleted_partition_count else "at rest"


def _is_gated(application: object) -> bool:
    consumer = getattr(application, "consumer", None)
    return consumer is not None and consumer._started and bool(consumer.gates())


class Phases:
    """Wakes what waits for a phase, at the write to ZooKeeper with which it begins."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._below = f"{paths.topic(TOPIC)}/"
        cluster.zookeeper.on_change.append(self._changed)

    async def begins(self, phase: str, *, within_s: float) -> bool:
        """Whether a short phase begins in time."""
        began = self._cluster.loop.create_future()
        self._waiting.setdefault(phase, []).append(began)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await began
        return began.done() and not began.cancelled()

    def _changed(self, change: Change) -> None:
        if self._waiting and (change.path == paths.topic(TOPIC) or change.path.startswith(self._below)):
            for began in self._waiting.pop(phase_of(self._cluster), ()):
                if not began.done():
                    began.set_result(None)
