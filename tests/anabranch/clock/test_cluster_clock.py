"""Advancing a clock fires its due timers in order, and no timers of others."""

from __future__ import annotations

import asyncio
import math

import pytest

from anabranch.clients.clock import time_of_day_clock
from anabranch.clock.cluster_clock import ClusterClock

pytestmark = pytest.mark.asyncio(loop_factories=["clock"])


def stopped() -> ClusterClock:
    clock = ClusterClock.new(0)
    assert clock is not None
    return clock


async def test_timers_fire_in_order_and_tasks_see_their_time() -> None:
    clock, rung = stopped(), []
    start_s = clock.now_s()

    async def ticks(name: str, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            rung.append((name, round(asyncio.get_running_loop().time() - start_s)))

    async def both() -> list[asyncio.Task[None]]:
        return [asyncio.create_task(ticks(name, every)) for name, every in (("slow", 30), ("fast", 20))]

    tasks = await clock.run(both())
    await clock.advance(65)
    assert rung == [("fast", 20), ("slow", 30), ("fast", 40), ("slow", 60), ("fast", 60)]
    await clock.advance(0)
    assert clock.now_s() - start_s == 65
    for task in tasks:
        task.cancel()


async def test_long_advance_has_at_most_a_thousand_steps() -> None:
    clock, stops = stopped(), set()

    async def ticks() -> None:
        while True:
            await asyncio.sleep(1)
            stops.add(clock.now_s())

    task = asyncio.create_task(clock.run(ticks()))
    await asyncio.sleep(0)
    await clock.advance(100_000)
    assert 900 < len(stops) <= 1000
    task.cancel()


async def test_clocks_are_independent() -> None:
    clock, other = stopped(), stopped()
    loop = asyncio.get_running_loop()
    before, others = loop.time(), other.now_s()
    sleeping = asyncio.create_task(other.run(asyncio.sleep(10)))
    await asyncio.sleep(0.001)
    await clock.advance(3600)
    assert loop.time() - before < 3600 and other.now_s() == others and not sleeping.done()
    await other.advance(10)
    await sleeping


async def test_clock_runs_at_its_pace() -> None:
    clock = stopped()
    clock.run_at(100_000)
    start_s = clock.now_s()
    await clock.run(asyncio.sleep(1000))
    assert clock.now_s() - start_s >= 1000 and clock.scale == 100_000
    clock.run_at(0)
    stands = clock.now_s()
    await asyncio.sleep(0.001)
    assert clock.now_s() == stands


async def test_wall_clock_follows_and_is_shared_with_brokers_started_later() -> None:
    clock = stopped()

    async def day() -> int:
        return time_of_day_clock()()

    before = await clock.run(day())
    await clock.advance(3600)
    assert await clock.run(day()) == clock.day_ms() == before + 3_600_000
    assert await day() < before + 3_600_000


async def test_time_of_day_counts_the_time_of_a_suspended_machine() -> None:
    """Timers do not: sessions of clients would end at once."""
    awake_s, asleep_s = [100.0], [0.0]
    clock = ClusterClock(lambda: awake_s[0], lambda _: None, elapsed_s=lambda: awake_s[0] + asleep_s[0])
    day_ms, now_s = clock.day_ms(), clock.now_s()
    asleep_s[0] += 3600
    awake_s[0] += 1
    assert clock.day_ms() - day_ms == pytest.approx(3_601_000, abs=1) and clock.now_s() - now_s == 1
    assert abs(clock.lead_ms() - 3_601_000) < 60_000, "of the real time, which has not passed"
    clock.run_at(0)
    asleep_s[0] += 3600
    assert clock.day_ms() - day_ms == pytest.approx(3_601_000, abs=1), "a stopped clock"
    clock.run_at(2)
    asleep_s[0] += 10
    assert clock.day_ms() - day_ms == pytest.approx(3_621_000, abs=1)
    clock.lead_by(5000)
    assert abs(clock.lead_ms() - 5000) < 1000 and clock.now_s() - now_s == 1


async def test_cancelled_advance_stops_clock_where_it_is() -> None:
    clock = stopped()
    at = clock.now_s()
    moving = asyncio.create_task(clock.advance(60))
    await asyncio.sleep(0)
    moving.cancel()
    await asyncio.gather(moving, return_exceptions=True)
    await asyncio.gather(clock.advance(1), clock.advance(2))
    assert 3 <= clock.now_s() - at <= 63


async def test_cancelled_timers_are_dropped() -> None:
    clock = stopped()

    async def many() -> None:
        for _ in range(1000):
            asyncio.get_running_loop().call_later(60, print).cancel()

    await clock.run(many())
    assert len(clock._timers) <= 101
    await clock.advance(60)
    assert clock._timers == [] and clock._cancelled == 0


async def test_invalid_advances_and_paces_are_refused() -> None:
    clock = stopped()
    for wrong in (-1, math.inf, math.nan):
        with pytest.raises(ValueError, match="cannot move by"):
            await clock.advance(wrong)
        with pytest.raises(ValueError, match="0 or more"):
            clock.run_at(wrong)
    with pytest.raises(ValueError, match="at most 1,000,000"):
        clock.run_at(1e300)


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_plain_event_loop_has_no_cluster_clock() -> None:
    assert ClusterClock.new() is None
