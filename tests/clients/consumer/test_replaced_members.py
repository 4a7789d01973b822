"""A member that slept past its session delivers no records of its former partitions.

Method: a real cluster in this process, and a member in a thread of its own, whose application blocks its whole loop:
no heartbeat leaves, as in a frozen process. Meanwhile another member takes over, and the topic is resized. Once the
member is a process of its own, and really stopped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from anabranch import Admin, Consumer, ConsumerRecord, Producer
from anabranch.clients.consumer import consumer_config
from anabranch.clients.consumer.consumer_group_membership import ConsumerGroupMembership
from anabranch.clients.consumer.lease import RECENT_MIN_S
from anabranch.cluster.in_process import Cluster
from anabranch.faults.rule import Rule
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.clients.consumer.groups import GROUP, TOPIC, History, Reader, cluster_and_admin, make_topic, resize, send

SLEEPER_SESSION_MS = 1000
LIVES_S = 240
"""Longer than a test: a sleeper whose test has failed ends, and does not keep the whole run."""
RECORDS = 200
ROOT = Path(__file__).parents[3]
POLL_MS = 200


async def by_polls(consumer: Consumer) -> list[ConsumerRecord]:
    """A few at a time."""
    batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=5)
    return [record for records in batches.values() for record in records]


async def one_by_one(consumer: Consumer) -> list[ConsumerRecord]:
    """The next one, if one comes soon."""
    try:
        async with asyncio.timeout(POLL_MS / 1000):
            return [await anext(consumer)]
    except TimeoutError:
        return []


class Sleeper(threading.Thread):
    """An application that blocks with records at hand, and then asks for more until it is a member again."""

    def __init__(self, cluster: Cluster, ask: Callable[[Consumer], Awaitable[list[ConsumerRecord]]], **settings: Any):
        super().__init__(name="sleeper")
        self.asleep, self.wake = threading.Event(), threading.Event()
        self.before: list[ConsumerRecord] = []
        self.late: list[ConsumerRecord] = []
        """Handed out after it woke up, and before it knew that it had been replaced."""
        self.failure: BaseException | None = None
        self.asleep_at_s = 0.0
        self._ask = ask
        self._settings = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SLEEPER_SESSION_MS,
            "heartbeat_interval_ms": 100,
            "fetch_max_wait_ms": 50,
            **settings,
        }

    def run(self) -> None:
        try:
            asyncio.run(asyncio.wait_for(self._live(), LIVES_S))
        except BaseException as error:
            self.failure = error
        finally:
            self.asleep.set()

    async def _live(self) -> None:
        async with Consumer(TOPIC, **self._settings) as consumer:
            self.consumer = consumer
            while not self.before or not all(one.buffered for one in consumer._core.assignment):
                for records in (await consumer.getmany(timeout_ms=POLL_MS, max_records=1)).values():
                    self.before += records
            generation = consumer.group_metadata().generation_id
            assert consumer._session is not None
            self.asleep_at_s = consumer._session._clock_s()
            self.asleep.set()
            self.wake.wait()
            while consumer.group_metadata().generation_id == generation:
                records = await self._ask(consumer)
                if consumer.group_metadata().generation_id == generation:
                    self.late += records

    @property
    def unsure(self) -> bool:
        """Whether it has slept for so long that it will ask, whatever a heartbeat under way was answered."""
        session = self.consumer._session
        assert session is not None
        return session.unsure and session._clock_s() >= self.asleep_at_s + RECENT_MIN_S

    async def until(self, event: threading.Event) -> None:
        await asyncio.get_running_loop().run_in_executor(None, event.wait)
        if self.failure is not None:
            raise self.failure

    async def end(self) -> None:
        self.wake.set()
        await asyncio.get_running_loop().run_in_executor(None, self.join)
        if self.failure is not None:
            raise self.failure


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("ask", [by_polls, one_by_one])
@pytest.mark.parametrize("commits", ["are due", "are not due", "are the application's"])
async def test_member_frozen_past_its_session_delivers_no_stale_records(
    strategy: str, ask: Callable[[Consumer], Awaitable[list[ConsumerRecord]]], commits: str
) -> None:
    """Its replacement has delivered newer records of the same keys, from new partitions."""
    async with cluster_and_admin(brokers=1, group_min_session_timeout_ms=str(SLEEPER_SESSION_MS)) as (cluster, admin):
        await make_topic(admin, 4)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, RECORDS)
            sleeper = Sleeper(
                cluster,
                ask,
                partition_assignment_strategy=strategy,
                enable_auto_commit=commits != "are the application's",
                auto_commit_interval_ms=100 if commits == "are due" else 60_000,
            )
            sleeper.start()
            try:
                await sleeper.until(sleeper.asleep)
                successor = await Reader("successor", history, partition_assignment_strategy=strategy).start()
                await history.until(lambda: len(successor.owned) == 4)
                await resize(admin, 6)
                await send(producer, admin, RECORDS)
                await history.until(lambda: len(history.distinct) >= 2 * RECORDS - len(sleeper.before))
            finally:
                await sleeper.end()
            await successor.stop()
        assert sleeper.before
        assert any(one.generation == 1 for one in history.deliveries)
        assert sleeper.late == []


async def test_fenced_static_member_delivers_nothing_while_its_session_lasts() -> None:
    """Another process with the same instance id has started (KIP-345)."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 4)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, RECORDS)
            sleeper = Sleeper(cluster, by_polls, group_instance_id="one", session_timeout_ms=60_000)
            sleeper.start()
            try:
                await sleeper.until(sleeper.asleep)
                successor = await Reader("successor", history, group_instance_id="one").start()
                await history.until(lambda: len(history.distinct) >= RECORDS - len(sleeper.before) and sleeper.unsure)
            finally:
                with pytest.raises(KafkaError) as fenced:
                    await sleeper.end()
            await successor.stop()
        assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID
        assert sleeper.late == []


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_member_left_out_of_rebalance_delivers_no_stale_records(strategy: str) -> None:
    """Heartbeats continue, but the application exceeds the rebalance timeout with fetched records."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        history = History(cluster)
        settings: dict[str, Any] = {"rebalance_timeout_ms": 1000, "partition_assignment_strategy": strategy}
        async with (
            Producer(cluster.bootstrap_servers, audit=True) as producer,
            Consumer(
                TOPIC,
                bootstrap_servers=cluster.bootstrap_servers,
                group_id=GROUP,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **settings,
            ) as busy,
        ):
            await send(producer, admin, RECORDS)
            while not busy.assignment() or not all(one.buffered for one in busy._core.assignment):
                await busy.getmany(timeout_ms=POLL_MS, max_records=1)
            generation = busy.generation
            successor = await Reader("successor", history, **settings).start()
            await history.until(lambda: len(history.distinct) == RECORDS)
            assert busy.generation == generation, "nobody has asked it for anything"
            while busy.generation == generation:
                taken = await busy.getmany(timeout_ms=POLL_MS)
                assert busy.generation > generation or not taken
            await successor.stop()


@pytest.mark.processes
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_stopped_process_delivers_no_stale_records_when_continued(strategy: str) -> None:
    async with cluster_and_admin(brokers=1, group_min_session_timeout_ms=str(SLEEPER_SESSION_MS)) as (cluster, admin):
        await make_topic(admin, 4)
        history, loop = History(cluster), asyncio.get_running_loop()
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, RECORDS)
            command = [sys.executable, "-m", "tests.clients.consumer.stopped_member"]
            command += [cluster.bootstrap_servers, strategy, str(SLEEPER_SESSION_MS)]
            start = partial(subprocess.Popen, command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            with await loop.run_in_executor(None, start) as member:
                try:
                    _, status = await loop.run_in_executor(None, os.waitpid, member.pid, os.WUNTRACED)
                    assert os.WIFSTOPPED(status)
                    successor = await Reader("successor", history, partition_assignment_strategy=strategy).start()
                    await history.until(lambda: len(successor.owned) == 4)
                    await resize(admin, 6)
                    await send(producer, admin, RECORDS)
                    await history.until(lambda: any(one.generation == 1 for one in history.deliveries))
                    member.send_signal(signal.SIGCONT)
                    late, _ = await loop.run_in_executor(None, member.communicate)
                finally:
                    member.kill()
            await successor.stop()
        assert late == "0\n"


@pytest.mark.parametrize("strategy", ["lineage", "cooperative-sticky"])
async def test_slow_start_lookup_does_not_rewind_commit_of_other_member(strategy: str) -> None:
    """The lookup of the log start is held, with heartbeats, until another member has read and committed everything. The
    member then gets the same partitions, and has nothing to deliver.
    """
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, RECORDS)
            question = cluster.faults.add(Rule(api=("ListOffsets",), client_id="slow", hold=True))
            settings: dict[str, Any] = {"partition_assignment_strategy": strategy, "rebalance_timeout_ms": 500}
            slow = Reader("slow", history, client_id="slow", **settings)
            starting = asyncio.create_task(slow.start())
            await question.wait_hit()
            quick = await Reader("quick", history, **settings).start()
            await history.until(lambda: len(history.distinct) == RECORDS and len(quick.owned) == 2)
            ends = {one: sum(partition == one for partition, _ in history.distinct) for one in (0, 1)}
            await history.until(lambda: all(history.committed(one) == end for one, end in ends.items()))
            question.release()
            question.remove()
            await starting
            await history.until(lambda: len(slow.owned) == len(quick.owned) == 1)
            await send(producer, admin, RECORDS)
            await history.until(lambda: len(history.distinct) == 2 * RECORDS)
            for reader in (slow, quick):
                await reader.stop()
        assert len(history.deliveries) == 2 * RECORDS, "each record once"
        assert any(one.member == "slow" for one in history.deliveries)


BROKER_SESSION_MS = 6000
NEW_GROUPS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(BROKER_SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "2000",
    "offsets.commit.timeout.ms": "60000",
}


class SilentBroker(ConsumerGroupMembership):
    """A broker that does not report its session timeout, like Kafka 4."""

    def full_request(self, ids: Mapping[str, bytes]) -> ConsumerGroupHeartbeatRequest:
        request = super().full_request(ids)
        request.asks_session_timeout = False
        return request

    def consumer_heartbeat_request(self) -> ConsumerGroupHeartbeatRequest:
        request = super().consumer_heartbeat_request()
        request.asks_session_timeout = False
        return request


@pytest.mark.parametrize("ask", [by_polls, one_by_one])
@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
async def test_consumer_group_member_frozen_past_broker_session_delivers_no_stale_records(
    told: bool, ask: Callable[[Consumer], Awaitable[list[ConsumerRecord]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the broker knows its session timeout: the member's setting is longer, and commits are manual."""
    if not told:
        monkeypatch.setattr(consumer_config, "ConsumerGroupMembership", SilentBroker)
    async with (
        asyncio.timeout(120),
        Cluster(1, seed=1, kafka="4.1", properties=NEW_GROUPS) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        Producer(cluster.bootstrap_servers, audit=True) as producer,
    ):
        await make_topic(admin, 4)
        history = History(cluster)
        await send(producer, admin, RECORDS)
        settings: dict[str, Any] = {"group_protocol": "consumer", "session_timeout_ms": 45_000}
        sleeper = Sleeper(cluster, ask, enable_auto_commit=False, **settings)
        sleeper.start()
        try:
            await sleeper.until(sleeper.asleep)
            successor = await Reader("successor", history, **settings).start()
            await history.until(lambda: len(successor.owned) == 4)
            await send(producer, admin, RECORDS)
            await history.until(lambda: len(history.distinct) == 2 * RECORDS)
        finally:
            await sleeper.end()
        await successor.stop()
    assert sleeper.before
    assert sleeper.late == []
