"""Every metric of a cluster, scraped while its event happens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from anabranch import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition
from anabranch.broker.metrics.endpoint import Endpoint
from anabranch.broker.metrics.node_families import FAMILIES
from anabranch.broker.quotas.client_quotas import PRODUCE
from anabranch.cluster.in_process import Cluster
from anabranch.protocol import linear_hashing
from tests.broker.metrics.scraping import Scrape, scrape

DASHBOARD = Path(__file__).parents[3] / "docs/grafana.json"
TOPIC = "t"
REPLICAS = 3


@asynccontextmanager
async def measured_cluster(*, brokers: int = 3, **properties: str) -> AsyncIterator[tuple[Cluster, Admin, Endpoint]]:
    settings = {name.replace("_", "."): value for name, value in properties.items()}
    async with (
        asyncio.timeout(60),
        Endpoint("127.0.0.1", 0) as endpoint,
        Cluster(brokers, seed=1, properties=settings) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        for node in cluster.nodes.values():
            endpoint.show(node)
        yield cluster, admin, endpoint


async def scrape_until(endpoint: Endpoint, condition: Callable[[Scrape], bool]) -> Scrape:
    while not condition(seen := await scrape(endpoint)):  # noqa: ASYNC110 nothing but a scrape tells
        await asyncio.sleep(0.01)  # as a scraper would, only sooner
    return seen


async def load(producer: Producer) -> None:
    """Records of many keys, until cancelled."""
    while True:
        for number in range(32):
            await producer.send(TOPIC, b"v", b"key-%d" % number)
        await asyncio.sleep(0.001)


def fenced(before: int, after: int) -> int:
    """How many partitions with producers a resize touches."""
    return sum(one < before for one in linear_hashing.affected_partitions(1, before, after))


async def test_resize_under_load_is_measured() -> None:
    """Each fence is observed once, on its broker."""
    async with measured_cluster() as (cluster, admin, endpoint):
        loop = asyncio.get_running_loop()
        await admin.create_topics([NewTopic(name=TOPIC, partitions=4, replication_factor=REPLICAS)])
        await admin.wait_for_topic(TOPIC, replicas=REPLICAS)
        active = next(str(n) for n, node in cluster.nodes.items() if node.controller and node.controller.active)
        async with Producer(cluster.bootstrap_servers) as producer:
            begun_s, expected = loop.time(), 0
            loading = asyncio.create_task(load(producer))
            await producer.send_and_wait(TOPIC, b"v", b"key")
            for step, (before, after) in enumerate(((4, 6), (6, 5)), 1):
                await admin.create_partitions(TOPIC, after, allow_shrink=True)
                expected += fenced(before, after)
                seen = await scrape_until(
                    endpoint,
                    lambda seen, step=step: all(
                        one == step for one in seen.of("anabranch_topic_generation", topic=TOPIC).values()
                    ),
                )
                assert seen.total("anabranch_reshard_fence_seconds_count") == expected
                assert seen.of("anabranch_reshard_planned_total") == {n: step * (n == active) for n in "123"}
                assert seen.of("anabranch_reshard_published_total") == {n: step * (n == active) for n in "123"}
                assert seen.total("anabranch_reshard_fenced_partitions") == 0
                while producer.metrics().switches < step:  # noqa: ASYNC110 -- it hears of each, however slow it is
                    await asyncio.sleep(0.001)
            took_s = loop.time() - begun_s
            assert 0 < seen.total("anabranch_reshard_fence_seconds_sum") < took_s * expected
            assert seen.total("anabranch_reshard_fence_seconds_bucket", le="+Inf") == expected
            assert seen.total("anabranch_reshard_draining_partitions") == 1, (
                "the retiring partition of the shrink holds records"
            )
            assert not any(name == "anabranch_reshard_plan_age_seconds" for name, _ in seen.values)
            loading.cancel()
            await producer.flush()
            client_metrics = producer.metrics()
            loaded_s = loop.time() - begun_s
        seen = await scrape(endpoint)
        assert client_metrics.records_acknowledged == client_metrics.records_sent
        assert seen.total("anabranch_topic_log_end_offset", topic=TOPIC) == client_metrics.records_sent
        assert seen.total("anabranch_reshard_refused_batches_total", topic=TOPIC) >= client_metrics.batches_refused > 0
        assert (client_metrics.switches, client_metrics.stalls >= 1) == (2, True)
        assert 0 < client_metrics.longest_stall_ms < loaded_s * 1000
        led = {
            str(n): sum(one.is_leader for one in node.services.replicas.partitions())
            for n, node in cluster.nodes.items()
        }
        assert seen.of("anabranch_partitions_led") == led
        assert sum(led.values()) == 6
        assert seen.total("anabranch_partitions_followed") == 6 * (REPLICAS - 1)
        assert seen.total("anabranch_requests_total", api="Produce") > 0
        assert seen.total("anabranch_received_bytes_total") > 8 * client_metrics.records_sent
        assert seen.total("anabranch_sent_bytes_total") > 8 * client_metrics.records_sent, (
            "followers fetch what was produced"
        )


async def two_brokers(cluster: Cluster, admin: Admin) -> None:
    """Partition 0 on broker 1, partition 1 on broker 2."""
    await admin.create_topics([NewTopic(name=TOPIC, assignments={0: [1], 1: [2]})])
    await admin.wait_for_topic(TOPIC)


def deafen_after_bump(cluster: Cluster) -> asyncio.Lock:
    """Broker 2 applies the bump of partition 1, and then waits with controller requests for the lock."""
    turn = cluster.nodes[2].services.fence.turn
    held: list[asyncio.Task[bool]] = []

    def hold(topic: str, index: int, _epoch: int) -> None:
        if (topic, index) == (TOPIC, 1):
            held.append(asyncio.ensure_future(turn.acquire()))

    cluster.nodes[2].services.replicas.on_leader(hold)
    return turn


async def test_delayed_resize_is_visible_in_the_metrics() -> None:
    """One broker ignores the controller: first completely, then after the bump of its partition."""
    async with measured_cluster(brokers=2) as (cluster, admin, endpoint):
        await two_brokers(cluster, admin)
        turn = cluster.nodes[2].services.fence.turn
        await turn.acquire()
        resizing = asyncio.create_task(admin.create_partitions(TOPIC, 4))
        plan = "anabranch_reshard_plan_age_seconds"
        seen = await scrape_until(endpoint, lambda seen: bool(seen.of(plan, topic=TOPIC)))
        later = await scrape(endpoint)
        assert 0 <= seen.total(plan, topic=TOPIC) < later.total(plan, topic=TOPIC)
        assert later.total("anabranch_reshard_planned_total") == 1
        assert later.total("anabranch_reshard_published_total") == 0
        deafen_after_bump(cluster)
        turn.release()
        fenced = "anabranch_reshard_fenced_partitions"
        published = "anabranch_reshard_published_total"
        seen = await scrape_until(
            endpoint, lambda seen: seen.total(published) == 1 and seen.of(fenced) == {"1": 0, "2": 1}
        )
        assert seen.of("anabranch_reshard_fence_seconds_count") == {"1": 1, "2": 0}
        async with Endpoint("127.0.0.1", 0) as late:
            late.show(cluster.nodes[2])
            assert (await scrape(late)).of("anabranch_reshard_fenced_partitions") == {"2": 1}
        turn.release()
        await resizing
        seen = await scrape_until(endpoint, lambda seen: seen.total("anabranch_reshard_fenced_partitions") == 0)
        assert seen.of("anabranch_reshard_fence_seconds_count") == {"1": 1, "2": 1}


async def test_leader_resigning_during_a_resize_leaves_no_fence() -> None:
    async with measured_cluster(brokers=2) as (cluster, admin, endpoint):
        await two_brokers(cluster, admin)
        turn = deafen_after_bump(cluster)
        resizing = asyncio.create_task(admin.create_partitions(TOPIC, 4))
        await scrape_until(endpoint, lambda seen: seen.of("anabranch_reshard_fenced_partitions").get("2") == 1)
        cluster.nodes[2].services.replicas.stop_replica(TOPIC, 1, -1, delete=False)
        assert (await scrape(endpoint)).of("anabranch_reshard_fenced_partitions")["2"] == 0
        turn.release()
        await resizing
        seen = await scrape_until(
            endpoint, lambda seen: seen.of("anabranch_topic_generation", topic=TOPIC) == {"1": 1, "2": 1}
        )
        assert seen.of("anabranch_reshard_fence_seconds_count") == {"1": 1, "2": 0}


async def test_failed_broker_is_visible_in_the_metrics() -> None:
    async with measured_cluster() as (cluster, admin, endpoint):
        await admin.create_topics(
            [
                NewTopic(name=TOPIC, partitions=3, replication_factor=3, configs={"min.insync.replicas": "3"}),
                NewTopic(name="alone", assignments={0: [3]}),
            ]
        )
        await admin.wait_for_topic(TOPIC, replicas=3)
        seen = await scrape_until(endpoint, lambda seen: seen.total("anabranch_partitions_led") == 4)
        assert seen.of("anabranch_brokers") == {"1": 3, "2": 3, "3": 3}
        assert seen.total("anabranch_partitions_under_replicated") == 0
        await cluster.crash_broker(3)
        seen = await scrape_until(
            endpoint,
            lambda seen: (
                seen.of("anabranch_brokers").items() >= {("1", 2), ("2", 2)}
                and seen.total("anabranch_partitions_offline") == 1
            ),
        )
        under = [seen.of(f"anabranch_partitions_under_{what}") for what in ("replicated", "min_isr")]
        assert [one["1"] + one["2"] for one in under] == [3, 3]
        assert sum(seen.of("anabranch_controller_active")[n] for n in "12") == 1
        await cluster.start_broker(3)
        endpoint.show(cluster.nodes[3])
        seen = await scrape_until(endpoint, lambda seen: seen.total("anabranch_partitions_under_replicated") == 0)
        assert seen.total("anabranch_isr_expansions_total") == 3
        assert seen.total("anabranch_partitions_offline") == 0
        epochs = {node.services.fence.controller_epoch for node in cluster.nodes.values()}
        assert set(seen.of("anabranch_controller_epoch").values()) == epochs


async def test_groups_transactions_and_quotas_are_measured() -> None:
    async with measured_cluster(brokers=1) as (cluster, admin, endpoint):
        await admin.create_topics([NewTopic(name=TOPIC, partitions=1, replication_factor=1)])
        await admin.wait_for_topic(TOPIC)
        servers = cluster.bootstrap_servers
        async with (
            Consumer(TOPIC, bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer,
            Producer(servers, transactional_id="tx") as producer,
        ):
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"v" * 1000)
            await consumer.getone()
            seen = await scrape(endpoint)
            assert seen.total("anabranch_transactions_open", state="Ongoing") == 1
            assert seen.total("anabranch_groups", state="Stable") == 1
            assert seen.of("anabranch_connections")["1"] >= 3
            assert seen.total("anabranch_topic_log_size_bytes", topic=TOPIC) > 1000
            assert seen.total("anabranch_throttled_requests_total") == 0
            await producer.commit_transaction()
        seen = await scrape_until(
            endpoint, lambda seen: not any(seen.total("anabranch_transactions_open", state=one) for one in STATES)
        )
        assert (seen.total("anabranch_groups", state="Stable"), seen.total("anabranch_groups", state="Empty")) == (0, 1)
        throttling = cluster.nodes[1].services.throttling
        assert throttling is not None
        throttling.quotas.set_limits((None, "greedy"), {PRODUCE: 10_000.0})
        async with Producer(servers, client_id="greedy", batch_bytes=1 << 20) as producer:
            await producer.send_and_wait(TOPIC, b"v" * 200_000)
        seen = await scrape(endpoint)
        assert seen.total("anabranch_throttled_requests_total") == 1
        assert seen.total("anabranch_throttled_seconds_total") > 1


STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


def has_what_is_shown(seen: Scrape) -> None:
    """Whether each metric of the dashboard exists with the labels that it uses."""
    queries = [
        (target["expr"], target["legendFormat"])
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel["targets"]
    ]
    queried = {name for query, _ in queries for name in re.findall(r"anabranch_\w+", query)}
    assert len(queried) > 20
    labels: dict[str, set[str]] = {}
    for name, found in seen.values:
        labels.setdefault(name, set()).update(label for label, _ in found)
    assert queried - labels.keys() <= {"anabranch_request_errors_total", "anabranch_reshard_fenced_partitions"}
    known = {f"anabranch_{family.name}" for family in FAMILIES}
    assert {re.sub("_(bucket|sum)$", "", name) for name in queried} <= known
    for query, legend in queries:
        (name,) = re.findall(r"anabranch_\w+", query)
        by = [label for part in re.findall(r"by \(([^)]*)\)", query) for label in part.split(", ")]
        if name in labels:
            assert {*by, *re.findall(r"(\w+)!?=", query)} <= labels[name], query
        assert set(re.findall(r"{{(\w+)}}", legend)) <= set(by), f"{legend} of {query}"


async def test_request_times_and_group_lag_are_measured() -> None:
    async with measured_cluster() as (cluster, admin, endpoint):
        await admin.create_topics([NewTopic(name=TOPIC, partitions=2, replication_factor=REPLICAS)])
        async with Producer(cluster.bootstrap_servers, client_id="filler") as producer:
            for number in range(30):
                await producer.send(TOPIC, b"v", partition=number % 2)
            await producer.flush()
        settings = {"group_id": "late", "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, **settings) as consumer:  # type: ignore[arg-type]
            await consumer.getone()
            await consumer.commit({TopicPartition(TOPIC, 0): 5, TopicPartition(TOPIC, 1): 15})
        with contextlib.suppress(KafkaError):
            await admin.create_topics([NewTopic(name=TOPIC)])
        seen = await scrape_until(
            endpoint, lambda seen: seen.total("anabranch_group_lag", group="late", topic=TOPIC) == 10
        )
        assert seen.total("anabranch_group_lag_max", group="late", topic=TOPIC) == 10
        assert seen.total("anabranch_group_partition_lag", group="late", topic=TOPIC, partition="0") == 10
        assert seen.total("anabranch_group_partition_lag", group="late", topic=TOPIC, partition="1") == 0
        has_what_is_shown(seen)
        for api in ("Produce", "Fetch", "OffsetCommit"):
            taken_up = seen.total("anabranch_requests_total", api=api)
            answered = seen.total("anabranch_request_seconds_count", api=api)
            assert 0 < answered <= taken_up
            work_s = seen.total("anabranch_request_work_seconds_sum", api=api)
            assert 0 < work_s <= seen.total("anabranch_request_seconds_sum", api=api)
        assert seen.total("anabranch_request_errors_total", api="CreateTopics", code="TOPIC_ALREADY_EXISTS") == 1
        assert seen.total("anabranch_client_requests_total", client="filler") > 0
        assert seen.total("anabranch_client_bytes_total", client="filler", moved="produced") > 30
        assert seen.total("anabranch_client_bytes_total", client="anabranch", moved="fetched") > 0
        await scrape_until(endpoint, lambda seen: seen.total("anabranch_loop_delay_seconds_count") > 2)
        await scrape_until(endpoint, lambda seen: seen.total("anabranch_zookeeper_seconds_count") == 3)
