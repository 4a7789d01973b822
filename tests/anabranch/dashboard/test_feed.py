"""A page gets all rows first and then changes; without a page nothing is read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from anabranch import Admin, Cluster, Consumer, NewTopic, Producer, Streams, StreamsConfig
from anabranch.clock.cluster_clock import ClusterClock
from anabranch.control import state
from anabranch.dashboard import feed as module
from anabranch.dashboard.collectors.cluster_rows import ClusterRows
from anabranch.dashboard.collectors.gates import GateCollector
from anabranch.dashboard.feed import Feed
from anabranch.dashboard.state_delta import StateDelta, StateSheet
from anabranch.dashboard.traffic import TimedDispatcher
from anabranch.faults.rule import Rule
from anabranch.inspect.group_lag import standing
from anabranch.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from anabranch.protocol.topic_partition import TopicPartition
from tests.broker.coordinators.streams_groups.world import subtopology
from tests.broker.serving import until
from tests.clients.streams.world import counts


class Page:
    """What a page does with its messages."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.snapshots = 0
        self.traffic: list[dict[str, Any]] = []
        self.seen = asyncio.Condition()

    async def read(self, feed: Feed) -> None:
        async with contextlib.aclosing(feed.follow()) as messages:
            async for kind, body in messages:
                document = json.loads(body)
                if kind == "snapshot":
                    self.snapshots += 1
                    self.rows = document["rows"]
                elif kind == "delta":
                    StateDelta.from_body(document).apply(self.rows)
                    self.events += document["events"]
                else:
                    self.traffic.append(document)
                async with self.seen:
                    self.seen.notify_all()

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(60), self.seen:
            await self.seen.wait_for(lambda: self._holds(condition))

    def _holds(self, condition: Any) -> bool:
        try:
            return bool(condition(self.rows))
        except KeyError:
            return False


@contextlib.asynccontextmanager
async def watched(brokers: int = 3, **settings: Any) -> AsyncIterator[tuple[Cluster, Feed, Page]]:
    async with Cluster(brokers, **settings) as cluster:
        page = Page()
        feed = Feed(
            partial(ClusterRows, cluster, rules=lambda: [one.row() for one in cluster.faults]),
            tell=lambda kind, **detail: page.told.append((kind, detail)),
        )
        reading = asyncio.create_task(page.read(feed))
        try:
            yield cluster, feed, page
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await feed.stop()


async def test_resize_with_a_group_is_shown() -> None:
    async with watched() as (cluster, _, page), Admin(cluster.bootstrap_servers) as admin:
        await page.until(lambda rows: any(rows[f"node/{one}"]["controller"] for one in (1, 2, 3)))
        await admin.create_topics([NewTopic(name="orders", partitions=2)])
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(40):
                await producer.send_and_wait("orders", key=b"%d" % number, value=b"x")
            await page.until(lambda rows: sum(rows[f"partition/orders/{one}"]["hw"] for one in (0, 1)) == 40)
            group = {"group_id": "billing", "auto_offset_reset": "earliest", "enable_auto_commit": False}
            async with Consumer("orders", bootstrap_servers=cluster.bootstrap_servers, **group) as consumer:
                await consumer.getone()
                await consumer.commit()
                await page.until(lambda rows: rows["group/billing"]["state"] == "Stable")
                await page.until(lambda rows: sum(rows["commits/billing"]["orders"].values()) == 1)
                await page.until(lambda rows: rows["group/billing"]["members"][0]["owns"] == {"orders": [0, 1]})
                await admin.create_partitions("orders", 3)
                await page.until(lambda rows: rows["topic/orders"]["generation"] == 1)
                await page.until(lambda rows: "gate/billing/orders/2" in rows)
        rows = page.rows
        assert rows["topic/orders"]["history"] == [[0, 2], [1, 3]]
        ((cut, generation, end),) = rows["topic/orders"]["cuts"]
        assert (cut, generation, end) == (0, 0, rows[f"partition/orders/{cut}"]["hw"])
        assert rows["gate/billing/orders/2"]["waits"] == [[0, end, rows["commits/billing"]["orders"].get("0", -1)]]
        assert [one[1] for one in rows["partition/orders/1"]["replicas"]] == [0, 0, 0]
        assert ("rebalance", {"group": "billing", "state": "Stable", "generation": 1, "members": 1}) in page.told
        assert any(kind == "gate closed" and detail["partition"] == 2 for kind, detail in page.told)
        await page.until(lambda rows: page.traffic)
        assert all(one[0] > 0 for one in page.traffic[-1]["apis"].values())


async def test_cut_below_a_later_log_start_ends_there() -> None:
    """So do leaders, and the gates of consumers, after records are deleted (R10)."""
    async with watched(1) as (cluster, _, page), Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"x", partition=0)
            await admin.create_partitions("t", 2)
            await page.until(lambda rows: rows["topic/t"]["cuts"] == [[0, 0, 1]])
            for _ in range(3):
                await producer.send_and_wait("t", b"x", partition=0)
        await admin.delete_records({TopicPartition("t", 0): 3})
        await page.until(lambda rows: rows["partition/t/0"]["replicas"] == [[1, 3, 4]])
        await page.until(lambda rows: rows["topic/t"]["cuts"] == [[0, 0, 3]])


def test_gates_that_were_closed_before_the_first_look_are_no_events() -> None:
    told: list[str] = []
    gates, sheet = GateCollector(lambda kind, **_: told.append(kind)), StateSheet()
    starts = [[0, [[0, 0], [1, 1]]], [1, [[1, 0]]]]
    topic = {"topic": "t", "base": 1, "history": [[0, 1], [1, 2]], "cuts": [[0, 0, 5]], "starts": starts}
    rows = {"group/g": {"protocol": "range"}, "topic/t": topic, "commits/g": {"t": {"0": 2}}}
    for key, row in (rows | {"partition/t/0": {"epoch": 1}, "partition/t/1": {"epoch": 0}}).items():
        sheet.put(key, row)
    gates.collect(sheet)
    assert ("gate/g/t/1" in sheet.rows, told) == (True, [])
    for committed in (5, 2):
        sheet.put("commits/g", {"t": {"0": committed}})
        gates.collect(sheet)
    assert told == ["gate opened", "gate closed"]


async def test_tasks_of_streams_group_are_shown() -> None:
    properties = {"group.streams.initial.rebalance.delay.ms": "0"}
    async with (
        watched(1, kafka="4.2", properties=properties) as (cluster, _, page),
        Admin(cluster.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic(name="t", partitions=2)])
        await admin.wait_for_topic("t")
        connection = await admin.network.connection(await admin.network.coordinator("app"))
        request = StreamsGroupHeartbeatRequest(
            group_id="app",
            member_id="thread",
            member_epoch=0,
            endpoint_information_epoch=-1,
            rebalance_timeout_ms=1000,
            topology=Topology(epoch=0, subtopologies=[subtopology("0", "t")]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
        assert (await connection.call(request)).error_code == 0
        await page.until(lambda rows: rows["group/app"]["state"] == "Stable")
        (member,) = page.rows["group/app"]["members"]
        assert (member["id"], member["owns"]) == ("thread", {"active 0": [0, 1]})
        (row,) = state.groups(cluster)
        assert (row["group"], row["state"], row["generation"], row["members"]) == ("app", "Stable", 2, ["thread"])


async def test_tasks_of_streams_instances_are_shown(tmp_path: Path) -> None:
    async with watched(1) as (cluster, _, page), Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name=name, partitions=2) for name in ("in", "out")])
        await admin.wait_for_topic("in")
        config = StreamsConfig(
            application_id="app",
            bootstrap_servers=cluster.bootstrap_servers,
            state_dir=tmp_path,
            application_server="one:80",
        )
        async with Streams(counts(), config):
            await page.until(lambda rows: rows["group/app"]["state"] == "Stable")
            (member,) = page.rows["group/app"]["members"]
            assert (member["owns"], member["tasks"]) == ({"in": [0, 1]}, {"active 0": [0, 1]})
            lines = list((await standing(admin, "app")).lines())
            assert lines[-1].endswith("has active 0_0 0_1  queries at one:80")


async def test_dead_and_suspended_nodes_are_shown() -> None:
    async with watched() as (cluster, _, page), Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=3)])
        await page.until(lambda rows: len(rows.get("partition/t/2", {}).get("isr", ())) == 3)
        await cluster.crash_broker(2)
        await page.until(lambda rows: rows["node/2"] == {**rows["node/2"], "state": "dead"})
        await page.until(lambda rows: all(2 not in rows[f"partition/t/{one}"]["isr"] for one in range(3)))
        assert "broker_epoch" not in page.rows["node/2"]
        assert [2, -1, -1] in page.rows["partition/t/0"]["replicas"]
        session = cluster.nodes[3].services.session
        session.lose_connection()
        await page.until(lambda rows: rows["node/3"]["link"] == "suspended")
        session.reconnect()
        await page.until(lambda rows: rows["node/3"]["link"] == "connected")
        await admin.delete_topics(["t"])
        await page.until(lambda rows: not [key for key in rows if key.startswith(("topic/", "partition/"))])


async def test_rules_and_transactions_are_shown() -> None:
    async with watched(1) as (cluster, _, page), Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        cluster.faults.add(Rule(name="slow", api=("Metadata",), delay_ms=(1.0,)))
        await page.until(lambda rows: "rule/slow" in rows)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="pay") as producer:
            async with producer.transaction():
                await producer.send_and_wait("t", b"x")
                await page.until(lambda rows: rows.get("transaction/pay", {}).get("state") == "Ongoing")
                assert page.rows["transaction/pay"]["partitions"] == ["t-0"]
            await page.until(lambda rows: rows["transaction/pay"]["state"] == "CompleteCommit")
        await page.until(lambda rows: rows["rule/slow"]["hits"] > 0)
        cluster.faults.clear()
        await page.until(lambda rows: "rule/slow" not in rows)


class Event:
    def __init__(self, number: int) -> None:
        self.number = number

    def row(self) -> dict[str, Any]:
        return {"number": self.number}


async def test_feed_without_pages_only_checks_events(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "QUIET_S", 0.0)
    monkeypatch.setattr(module, "PERIOD_S", 0.0005)
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        feed, looks = Feed(partial(ClusterRows, cluster)), list[None]()
        look = feed.look
        monkeypatch.setattr(feed, "look", lambda: (looks.append(None), look())[1])
        feed.on_event(Event(1))
        assert not looks
        async with contextlib.aclosing(feed.follow()) as messages:
            assert (await anext(messages))[0] == "snapshot"
            assert isinstance(cluster.nodes[1].server.dispatcher, TimedDispatcher)
            feed.on_event(Event(2))
            kind, body = await anext(messages)
            assert (kind, json.loads(body)["events"]) == ("delta", [{"number": 2}])
        assert not isinstance(cluster.nodes[1].server.dispatcher, TimedDispatcher)
        await until(lambda: not feed._wakeup.is_set())
        count, began_s = len(looks), time.monotonic()
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        assert time.monotonic() - began_s > 3 * module.PERIOD_S, "time in which it could have looked"
        assert len(looks) == count
        feed.on_event(Event(3))
        await until(lambda: len(looks) > count)
        found = feed.history.at(feed.now_s())
        assert found is not None
        assert "topic/t" in found[1]
        await feed.stop()


class Counting:
    """A source without rows, which measures for how long it counts requests."""

    async def refresh(self) -> None:
        pass

    def collect(self, sheet: StateSheet) -> None:
        pass

    def open(self) -> None:
        self.since_s = asyncio.get_running_loop().time()

    def close(self) -> None:
        pass

    def take_traffic(self) -> dict[str, Any]:
        since_s, self.since_s = self.since_s, asyncio.get_running_loop().time()
        return {"span": self.since_s - since_s}


async def passed(seconds: float) -> None:
    clock_s = asyncio.get_running_loop().time
    end_s = clock_s() + seconds
    await until(lambda: clock_s() > end_s)


async def test_requests_are_counted_for_a_whole_interval_after_a_page_returns(monkeypatch: Any) -> None:
    """A rate over some milliseconds is none."""
    monkeypatch.setattr(module, "TRAFFIC_S", 0.1)
    monkeypatch.setattr(module, "PERIOD_S", 0.001)
    feed = Feed(lambda tell: Counting())
    for _ in range(2):
        async with contextlib.aclosing(feed.follow()) as messages:
            async for kind, body in messages:
                if kind == "traffic":
                    assert json.loads(body)["span"] >= module.TRAFFIC_S
                    break
        await passed(3 * module.TRAFFIC_S)
    await feed.stop()


async def test_page_is_told_of_another_run() -> None:
    async def run(feed: Feed) -> str:
        async with contextlib.aclosing(feed.follow()) as messages:
            return str(json.loads((await anext(messages))[1])["run"])

    one, other = Feed(lambda tell: Counting()), Feed(lambda tell: Counting())
    assert await run(one) == await run(one) != await run(other)
    for feed in (one, other):
        await feed.stop()


@pytest.mark.asyncio(loop_factories=["clock"])
async def test_changes_tell_the_time_of_day() -> None:
    """It goes back when a snapshot is restored after the clock was advanced; the other time does not."""
    clock = ClusterClock.new()
    assert clock is not None
    feed = Feed(lambda tell: Counting(), clock)
    async with contextlib.aclosing(feed.follow()) as messages:
        bodies = [json.loads((await anext(messages))[1])]
        for number, lead_ms in enumerate((7_200_000, 0)):
            clock.lead_by(lead_ms)
            feed.on_event(Event(number))
            feed.look()
            bodies.append(json.loads((await anext(messages))[1]))
    days_s = [body["day_ms"] / 1000 - body["at"] for body in bodies]
    assert [round((day_s - days_s[0]) / 3600, 1) for day_s in days_s] == [0, 2, 0]
    await feed.stop()


async def test_slow_page_restarts_with_a_snapshot() -> None:
    async with Cluster(1) as cluster:
        feed = Feed(partial(ClusterRows, cluster))
        async with contextlib.aclosing(feed.follow()) as messages:
            assert (await anext(messages))[0] == "snapshot"
            for number in range(module.MESSAGES_KEPT + 1):
                feed.on_event(Event(number))
                feed.look()
            assert (await anext(messages))[0] == "snapshot"
        await feed.stop()
