"""A wait wakes up at each change that its condition depends on, and never otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch import Admin, Consumer, Producer, TopicPartition
from anabranch.clients.connection import Connection
from anabranch.control.cluster_changes import Dependencies
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.wait_conditions import Condition, StateRows, condition, wait
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.protocol.errors import ErrorCode
from tests.anabranch.control.conftest import controlled, with_topic
from tests.broker.serving import until

WAITS = 300
NEVER_S = 600
"""The deadline of waits that a change has to end: a test that gets there has failed."""


@pytest.fixture
async def on() -> AsyncIterator[ControlledCluster]:
    async with controlled() as one:
        await with_topic(one)
        yield one


@asynccontextmanager
async def waiting(on: ControlledCluster, **words: object) -> AsyncIterator[None]:
    """Inside, the wait is held; at the end it has been woken."""
    awaited = condition({name: str(value) for name, value in words.items()})
    looks: list[str] = []

    def counted(rows: StateRows) -> str:
        looks.append(awaited.missing(rows))
        return looks[-1]

    held = asyncio.create_task(wait(on.cluster, Condition((counted,), awaited.depends_on), NEVER_S))
    await until(lambda: bool(looks))
    assert looks[-1], "it holds already"
    async with asyncio.timeout(30):
        yield
        assert await held == ""


async def test_waits_without_matching_changes_are_evaluated_at_start_and_end(on: ControlledCluster) -> None:
    evaluations = 0

    def missing(_: StateRows) -> str:
        nonlocal evaluations
        evaluations += 1
        return "it"

    everything = Dependencies(topic="t", all_topics=True, group="g")
    async with Admin(on.cluster.bootstrap_servers) as admin:
        await admin.describe_topics(["t"])  # requests that change nothing wake nobody
        answers = await asyncio.gather(
            *(wait(on.cluster, Condition((missing,), everything), 1) for _ in range(WAITS)),
            *(admin.describe_topics(["t"]) for _ in range(10)),
        )
    assert answers[:WAITS] == ["it"] * WAITS
    assert evaluations <= 3 * WAITS


async def test_new_topics_and_partitions_wake_a_wait(on: ControlledCluster) -> None:
    async with waiting(on, topic="u", isr="3+"):
        await with_topic(on, "u")
    async with Admin(on.cluster.bootstrap_servers) as admin, waiting(on, topic="u", partitions=3):
        await admin.create_partitions("u", 3)


async def test_appended_records_wake_a_wait_for_a_high_watermark(on: ControlledCluster) -> None:
    async with Producer(on.cluster.bootstrap_servers) as producer:
        async with waiting(on, topic="t", partition=1, high_watermark=1):
            await producer.send_and_wait("t", b"v", partition=1)
        async with waiting(on, topic="t", partition=1, high_watermark=2):
            await producer.send_and_wait("t", b"v", partition=1)


async def test_stopped_and_started_brokers_wake_waits(on: ControlledCluster) -> None:
    async with waiting(on, topic="t", isr="1,3"):
        await on.actions.kill(2)
    async with waiting(on, node=2), waiting(on, topic="t", isr="3+"):
        await on.actions.start(2)


async def test_controller_failover_wakes_a_wait_for_it(on: ControlledCluster) -> None:
    active = next(one for one, node in on.cluster.nodes.items() if node.controller and node.controller.active)
    awaited = [condition({"controller": str(one)}) for one in on.cluster.node_ids if one != active]
    waits = [asyncio.create_task(wait(on.cluster, one, NEVER_S)) for one in awaited]
    await on.actions.kill(active)
    done, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=30)
    assert [one.result() for one in done] == [""]
    for one in others:
        one.cancel()


async def test_members_and_commits_wake_waits_for_a_group(on: ControlledCluster) -> None:
    servers = on.cluster.bootstrap_servers
    async with Producer(servers) as producer:
        await producer.send_and_wait("t", b"v", partition=0)
    consumer = Consumer(
        "t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with waiting(on, group="g", state="Stable", members=1):
        await consumer.start()
        await consumer.getone()
    async with waiting(on, group="g", lag=0):
        await consumer.commit({TopicPartition("t", 0): 1})
    async with waiting(on, group="g", state="Empty"):
        await consumer.stop()


async def test_unstored_rebalance_wakes_a_wait_for_a_group() -> None:
    """A member that joins and waits changes neither metadata nor a partition."""
    async with controlled(1, properties={"group.initial.rebalance.delay.ms": "60000"}) as on:
        connection = await Connection.open(*on.cluster.address(1), client_id="c")
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        await connection.call(FindCoordinatorRequest(key="g"), version=0)
        while (await connection.call(heartbeat, version=0)).error_code != ErrorCode.UNKNOWN_MEMBER_ID:
            await connection.call(FindCoordinatorRequest(key="g"), version=0)
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        join = JoinGroupRequest(
            group_id="g", session_timeout_ms=30_000, member_id="", protocol_type="consumer", protocols=protocols
        )
        async with waiting(on, group="g", state="PreparingRebalance"):
            joining = asyncio.create_task(connection.call(join, version=3))
        await connection.close()
        with pytest.raises(ConnectionError):
            await joining
