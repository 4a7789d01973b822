"""Measures the latency of a node's event loop and of its ZooKeeper.

A late event loop delays every request. Causes are handlers that block, garbage collection, and other processes on the
same processor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from anabranch.broker.metrics.histogram import Histogram
from anabranch.controller.zk.session import ZkError

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BEAT_S: Final = 0.1
PING_EVERY_BEATS: Final = 50


class LoopLatencyProbe:
    """Measures the delay of an event loop's timers, and the response time of a ZooKeeper session."""

    def __init__(self, ping: Callable[[], Awaitable[object]], loop: asyncio.AbstractEventLoop) -> None:
        """`ping` sends a small request to ZooKeeper."""
        self.loop_delay_s = Histogram(BOUNDS_S)
        """The delay of a timer callback, measured ten times a second."""
        self.zookeeper_s = Histogram(BOUNDS_S)
        """The response time, measured every five seconds; failed requests are not counted."""
        self._ping = ping
        self._loop = loop
        self._beats = 0
        self._due_s = self._loop.time() + BEAT_S
        self._alarm = self._loop.call_at(self._due_s, self._beat)
        self._pinging: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Stop measuring."""
        self._alarm.cancel()
        if self._pinging is not None:
            self._pinging.cancel()

    def _beat(self) -> None:
        now_s = self._loop.time()
        self.loop_delay_s.observe(now_s - self._due_s)
        self._due_s = now_s + BEAT_S
        self._alarm = self._loop.call_at(self._due_s, self._beat)
        if self._beats % PING_EVERY_BEATS == 0 and (self._pinging is None or self._pinging.done()):
            self._pinging = self._loop.create_task(self._ping_zookeeper(), name="metrics: ZooKeeper")
        self._beats += 1

    async def _ping_zookeeper(self) -> None:
        start_s = self._loop.time()
        try:
            await self._ping()
        except ZkError:
            return
        self.zookeeper_s.observe(self._loop.time() - start_s)
