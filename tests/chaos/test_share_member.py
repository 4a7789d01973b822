"""A member's log has the outcome of its records, also after a lost session or lock.

Method: members in front of a real cluster that shows itself as Kafka 4.2.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.chaos.share_member import FAILURES, RETRY_BACKOFF_S, ShareMember, begin_at_earliest
from anabranch.chaos.share_session import Acknowledgement, SharedRecord, Verdict
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.errors import KafkaError
from tests.broker.coordinators.share_partitions.sharing import TOPIC, send, sharing

GROUP = "g"


class InOrder(random.Random):
    """Asks one leader first."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first

    def sample(self, population: Any, k: int, *, counts: Any = None) -> list[Any]:
        return sorted(population, key=lambda one: one != self._first)


@asynccontextmanager
async def reading(cluster: Cluster, name: str, topic: str = TOPIC) -> AsyncIterator[ShareMember]:
    servers = cluster.bootstrap_servers.split(",")
    await begin_at_earliest(servers[0], GROUP)
    member = ShareMember(servers, GROUP, name, topic, rng=random.Random(name), heartbeat_s=0.1)
    beating = asyncio.create_task(member.beat_forever())
    try:
        yield member
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await member.close()


async def some(member: ShareMember, count: int) -> list[SharedRecord]:
    """So many records, by as many polls as it takes."""
    got: list[SharedRecord] = []
    while len(got) < count:
        got += await member.poll(count - len(got), 200)
    return got


async def said(
    member: ShareMember, verdict: Verdict, *records: SharedRecord, later: bool = False
) -> dict[int, bool | None]:
    """Return the outcome of each acknowledgement, by offset."""
    outcome: dict[int, bool | None] = {}

    def sayings() -> list[Acknowledgement]:
        return [
            Acknowledgement(one, verdict, lambda holds, one=one: outcome.update({one.offset: holds})) for one in records
        ]  # type: ignore[misc]

    await member.acknowledge(sayings(), later=later)
    return outcome


async def test_acknowledged_records_are_done_and_released_ones_come_again() -> None:
    async with sharing() as cluster:
        await send(cluster, 4)
        async with reading(cluster, "a") as member:
            zero, one, two, three = await some(member, 4)
            assert [(record.place, record.value, record.delivery_count) for record in (zero, three)] == [
                ((TOPIC, 0), b"0", 1),
                ((TOPIC, 0), b"3", 1),
            ]
            assert await said(member, Verdict.ACCEPT, zero) == {0: True}
            assert await said(member, Verdict.REJECT, one) == {1: True}
            assert await said(member, Verdict.RELEASE, two) == {2: True}
            later = await said(member, Verdict.ACCEPT, three, later=True)
            assert later == {}
            (again,) = await some(member, 1)
            assert (again.offset, again.delivery_count, later) == (2, 2, {3: True})


async def test_expired_lock_loses_record_and_renewed_lock_keeps_it() -> None:
    lock = {"group_share_record_lock_duration_ms": "1000", "group_share_min_record_lock_duration_ms": "1000"}
    async with sharing(**lock) as cluster:
        await send(cluster, 2)
        async with reading(cluster, "a") as member, reading(cluster, "b") as other:
            lost, held = await some(member, 2)
            enough = asyncio.Event()
            renewing = asyncio.create_task(_renew(member, held, enough))
            assert [one.offset for one in await some(other, 1)] == [lost.offset]
            enough.set()
            await renewing
            assert await said(member, Verdict.ACCEPT, lost) == {0: False}
            assert await said(member, Verdict.ACCEPT, held) == {1: True}


async def _renew(member: ShareMember, record: SharedRecord, enough: asyncio.Event) -> None:
    while not enough.is_set():
        assert await said(member, Verdict.RENEW, record) == {record.offset: True}
        await asyncio.sleep(0.1)


async def test_closed_session_releases_records_of_member() -> None:
    async with sharing() as cluster:
        await send(cluster, 2)
        async with reading(cluster, "a") as member, reading(cluster, "b") as other:
            first, second = await some(member, 2)
            waits = await said(member, Verdict.ACCEPT, second, later=True)
            await first.session.drop()
            assert waits == {1: False}
            assert await said(member, Verdict.ACCEPT, first) == {0: False}
            assert {one.offset for one in await some(other, 2)} == {0, 1}


async def test_session_with_cancelled_request_is_closed() -> None:
    """The broker may have processed the request, so the next epoch is unknown."""
    async with sharing() as cluster:
        await send(cluster, 1)
        async with reading(cluster, "a") as member:
            (record,) = await some(member, 1)
            outcome: list[bool | None] = []
            with cluster.faults(api="ShareAcknowledge", hold=True) as rule:
                saying = asyncio.create_task(
                    record.session.acknowledge([Acknowledgement(record, Verdict.ACCEPT, outcome.append)])
                )
                await rule.wait_hit()
                saying.cancel()
                await asyncio.gather(saying, return_exceptions=True)
            assert (outcome, record.session.lives) == ([None], False)


async def test_member_continues_with_next_leader() -> None:
    async with sharing(3) as cluster:
        await send(cluster, 2)
        async with reading(cluster, "a") as member:
            (zero, _) = await some(member, 2)
            assert await said(member, Verdict.ACCEPT, zero) == {0: True}
            await cluster.crash_broker(zero.session.node)
            got: list[SharedRecord] = []
            while not got:
                try:
                    got = await some(member, 1)
                except (KafkaError, OSError, TimeoutError):
                    await asyncio.sleep(0.05)
            assert (got[0].offset, got[0].session.node != zero.session.node) == (1, True)


async def test_dead_leader_does_not_delay_acknowledgements_to_others() -> None:
    alone = {"share.coordinator.state.topic.min.isr": "1"}  # the living broker stores the states without the other
    async with sharing(2, **alone) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="alone", partitions=2, replication_factor=1)])
        known = (await admin.wait_for_topic("alone")).partitions
        living, dead = known[0].leader, known[1].leader
        async with reading(cluster, "a", "alone") as member, Producer(cluster.bootstrap_servers) as producer:
            for partition in (0, 1):
                for _ in range(4):
                    await producer.send_and_wait("alone", b"x", partition=partition)
            held: dict[int, SharedRecord] = {}
            while held.keys() != {living, dead}:
                held |= {one.session.node: one for one in await member.poll(1, 0)}
            await cluster.crash_broker(dead)
            for first in (dead, living):
                member._rng = InOrder(first)
                member._leaders = {(where, index): known[index].leader for where, index in member.assigned}
                assert [one.session.node for one in await member.poll(1, 0)] == [living]
            outcome: dict[int, bool | None] = {}
            sayings = [
                Acknowledgement(held[node], Verdict.ACCEPT, lambda holds, node=node: outcome.update({node: holds}))  # type: ignore[misc]
                for node in (dead, living)
            ]
            await member.acknowledge(sayings)
            assert outcome == {dead: False, living: True}


async def test_member_pauses_between_searches_for_a_leader() -> None:
    alone = {"share.coordinator.state.topic.min.isr": "1"}
    async with sharing(2, **alone) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="alone", partitions=2, replication_factor=1)])
        known = (await admin.wait_for_topic("alone")).partitions
        async with reading(cluster, "a", "alone") as member:
            while len(member._brokers) < 2 or len(member.assigned) < 2:
                await member.poll(1, 0)
            member._servers = ["{}:{}".format(*member._brokers[known[0].leader])]
            await cluster.crash_broker(known[1].leader)
            led = 2
            while led > 1:
                member._leaders = None
                with contextlib.suppress(*FAILURES):  # its connection may be to the broker that died
                    led = len(await member._assigned_by_leader())
            started = asyncio.get_running_loop().time()
            assert await member.poll(1, 0) == []
            assert asyncio.get_running_loop().time() - started >= RETRY_BACKOFF_S


async def test_refused_group_setting_is_an_error() -> None:
    async with sharing() as cluster:
        with pytest.raises(KafkaError):
            await begin_at_earliest(cluster.bootstrap_servers, "")
