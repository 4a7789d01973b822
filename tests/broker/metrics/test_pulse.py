"""Loop delay equals the blocked time; ZooKeeper gets one probe at a time, and may be unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from anabranch.broker.metrics.pulse import BEAT_S, PING_EVERY_BEATS, LoopLatencyProbe
from anabranch.controller.zk.session import ConnectionLoss


class Loop:
    """A loop with given time."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self.due.append((when_s, callback))
        return asyncio.get_running_loop().call_at(1e9, lambda: None)

    def create_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work, name=name))
        return self.tasks[-1]

    def beat(self, late_s: float = 0.0) -> None:
        ((when_s, callback),) = self.due
        self.due.clear()
        self.now_s = when_s + late_s
        callback()


async def test_delayed_event_loop_is_measured() -> None:
    loop = Loop()
    pulse = LoopLatencyProbe(lambda: asyncio.sleep(0), cast(asyncio.AbstractEventLoop, loop))
    loop.beat()
    loop.beat(late_s=0.3)
    loop.beat()
    assert pulse.loop_delay_s.count == 3
    assert pulse.loop_delay_s.sum == pytest.approx(0.3)
    assert dict(pulse.loop_delay_s.cumulative())[0.25] == 2
    assert loop.now_s == pytest.approx(100.0 + 3 * BEAT_S + 0.3)
    pulse.stop()
    await asyncio.gather(*loop.tasks, return_exceptions=True)


async def test_zookeeper_latency_has_one_probe_at_a_time_and_counts_failures() -> None:
    loop, answers = Loop(), list[asyncio.Future[None]]()

    async def ask() -> None:
        answers.append(asyncio.get_running_loop().create_future())
        await answers[-1]

    pulse = LoopLatencyProbe(ask, cast(asyncio.AbstractEventLoop, loop))
    for _ in range(2 * PING_EVERY_BEATS):
        loop.beat()
        await asyncio.sleep(0)
    assert len(answers) == 1, "it has not answered yet"
    loop.now_s += 0.7
    answers[0].set_result(None)
    await loop.tasks[0]
    assert pulse.zookeeper_s.count == 1
    assert pulse.zookeeper_s.sum == pytest.approx((2 * PING_EVERY_BEATS - 1) * BEAT_S + 0.7)
    loop.beat()
    await asyncio.sleep(0)
    answers[1].set_exception(ConnectionLoss())
    await loop.tasks[1]
    assert pulse.zookeeper_s.count == 1
    for _ in range(PING_EVERY_BEATS):
        loop.beat()
    await asyncio.sleep(0)
    pulse.stop()
    with pytest.raises(asyncio.CancelledError):
        await loop.tasks[2]
