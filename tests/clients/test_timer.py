"""One timer fires at the earliest of many deadlines, on every event loop.

uvloop is among them: its `call_at` gives a plain handle for what is near, and rings a moment early.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from anabranch import Consumer, Producer
from anabranch.broker.coordinators.runtime.coordinator_tasks import CoordinatorTimer
from anabranch.broker.replication.purgatory import Purgatory
from anabranch.clients.admin import Admin
from anabranch.clients.connection import Connection
from anabranch.clients.timer import Timer
from anabranch.clients.topic_admin import NewTopic
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.clients.peer import serve

LOOPS = ("asyncio", "hasty", "uvloop")
NEAR_S = 0.0004
"""For what is nearer than a millisecond uvloop makes no timer."""


@pytest.mark.asyncio(loop_factories=LOOPS)
async def test_timer_fires_once_at_earliest_deadline() -> None:
    now = asyncio.get_running_loop().time
    rung: asyncio.Queue[float] = asyncio.Queue()
    timer = Timer(lambda: rung.put_nowait(timer.due))
    timer.set_by(now() + 60)
    timer.set_by(now() + NEAR_S)
    timer.set_by(now() + 30)
    assert timer.due < now() + 1
    assert await asyncio.wait_for(rung.get(), 20) == math.inf, "it is free when it rings"
    timer.set_by(now() + NEAR_S)
    timer.cancel()
    assert timer.due == math.inf
    timer.set_by(now() + 0.02)
    await asyncio.wait_for(rung.get(), 20)
    assert rung.empty()


@pytest.mark.asyncio(loop_factories=LOOPS)
async def test_later_deadline_after_an_earlier_one_fires() -> None:
    """The handle's time must be right before it fires."""

    async def answer(request: Any) -> Any:
        return HeartbeatResponse(throttle_time_ms=request.generation_id, error_code=0)

    def heartbeat(generation: int) -> HeartbeatRequest:
        return HeartbeatRequest(group_id="g", generation_id=generation, member_id="m")

    async with serve(answer) as peer:
        connection = await Connection.open("127.0.0.1", peer.port, client_id="test")
        near = connection.send(heartbeat(1), timeout_ms=NEAR_S * 1000)
        far = connection.send(heartbeat(2), timeout_ms=60_000)
        near_one, far_one = await asyncio.gather(near, far, return_exceptions=True)
        assert isinstance(near_one, HeartbeatResponse | TimeoutError)
        assert isinstance(far_one, HeartbeatResponse | ConnectionError)
        await connection.close()

    rooms = Purgatory()
    await asyncio.gather(*(rooms.wait(rooms.fetches, (), ms, lambda _: False) for ms in (NEAR_S * 1000, 0, 20, 5)))
    rooms.close()

    rung: asyncio.Queue[str] = asyncio.Queue()
    clock = asyncio.get_running_loop().time
    alarm: CoordinatorTimer[str] = CoordinatorTimer(
        lambda: int(clock() * 1000), lambda key, at_ms: rung.put_nowait(key)
    )
    alarm.start()
    for key in ("a", "b"):
        alarm.set(key, int(clock() * 1000))
    assert {await asyncio.wait_for(rung.get(), 20) for _ in range(2)} == {"a", "b"}
    alarm.stop()


@pytest.mark.asyncio(loop_factories=["uvloop"])
async def test_clients_work_on_uvloop() -> None:
    """Clients and brokers both run on uvloop here."""
    async with Cluster(1, seed=4) as cluster:
        where = cluster.bootstrap_servers
        async with Admin(bootstrap_servers=where) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=1)])
        async with Producer(bootstrap_servers=where) as producer:
            await asyncio.gather(*[await producer.send("t", b"%d" % n, key=b"%d" % n) for n in range(200)])
        got: set[bytes | None] = set()
        async with Consumer("t", bootstrap_servers=where, group_id="g", auto_offset_reset="earliest") as consumer:
            while len(got) < 200:
                found = await consumer.getmany(timeout_ms=1000)
                got |= {record.value for records in found.values() for record in records}
        assert got == {b"%d" % n for n in range(200)}
