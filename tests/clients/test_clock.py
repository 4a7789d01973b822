"""One wall clock for all, which runs with the loop's clock."""

import asyncio
import time

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.clients import clock
from anabranch.clients.clock import time_of_day_clock, wall_clock_ms
from anabranch.cluster.in_process import Cluster


def test_wall_clock_is_time_of_day() -> None:
    before_ms = time.time() * 1000
    assert before_ms - 1 <= wall_clock_ms() <= time.time() * 1000 + 1


async def test_steps_of_the_system_clock_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    clock_ms = time_of_day_clock()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    monkeypatch.setattr(loop, "time", lambda real=loop.time: real() + 3600)
    assert abs(clock_ms() - time.time() * 1000) < 1000, "bound when made"
    later = time_of_day_clock()
    before = later()
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    assert later() - before < 1000


async def test_time_in_which_the_machine_was_suspended_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a woken node accepts expired tokens, and its timestamps are hours old."""
    passed_s = [0.0]
    monkeypatch.setattr(clock, "system_elapsed_s", lambda: passed_s[0])
    clock_ms = time_of_day_clock()
    before_ms = clock_ms()
    passed_s[0] = 8 * 3600.0
    assert clock_ms() - before_ms == 8 * 3600 * 1000


async def test_timestamps_come_from_the_given_clock() -> None:
    begun_ms = time.time() * 1000
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        await admin.wait_for_topic("t")
        servers = cluster.bootstrap_servers
        async with Producer(servers, clock_ms=lambda: 1234) as given, Producer(servers) as own:
            await given.send_and_wait("t", b"x")
            await given.send_and_wait("t", b"x", timestamp_ms=99)
            await own.send_and_wait("t", b"x")
        async with Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            times_ms = [(await consumer.getone()).timestamp for _ in range(3)]
    assert times_ms[:2] == [1234, 99]
    assert begun_ms - 5000 < times_ms[2] < time.time() * 1000 + 5000
