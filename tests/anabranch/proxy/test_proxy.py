"""Clients of a proxy see the cluster behind it, with rules and a journal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch import Consumer, Producer
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.faults.active_rule import RuleNeverHit
from anabranch.faults.rule_json import InvalidRule
from anabranch.protocol.apis.describe_cluster import DescribeClusterRequest
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.list_groups import ListGroupsRequest
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.errors import ErrorCode
from anabranch.proxy.proxy import Proxy
from anabranch.testing.containers import adjacent_free_ports
from tests.anabranch.proxy.stories import everything, make_topics, place, proxied, settings
from tests.broker.serving import until
from tests.differential.case import batch


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
@pytest.mark.parametrize("journal_size", [0, 1000])
async def test_three_clients_work_with_and_without_journal(journal_size: int) -> None:
    async with proxied(3, journal_size=journal_size, frames=True) as (_, proxy):
        await make_topics(proxy.bootstrap_servers, "all-confluent", "all-kafka-python", "all-aiokafka")
        await everything(proxy.bootstrap_servers, "all")
        assert proxy.node_ids == [1, 2, 3]
        if proxy.journal is not None:
            for client in ("confluent", "kafka-python", "aiokafka"):
                assert proxy.journal.count(api="Produce", topic=f"all-{client}", client_id=client) >= 1
                assert proxy.journal.count(api="OffsetCommit", group=f"group-all-{client}", client_id=client) >= 1
                assert proxy.journal.count(api="EndTxn", transactional_id=f"tx-all-{client}") == 1


async def call(servers: str, request: Any, version: int | None = None) -> Any:
    connection = await Connection.open(*place(servers), client_id="app")
    try:
        return await connection.call(request, version=version)
    finally:
        await connection.close()


async def test_every_response_with_brokers_has_ports_of_proxy() -> None:
    async with proxied(3) as (cluster, proxy):
        ports = {row["node"]: row["port"] for row in proxy.nodes()}
        assert len(set(ports.values())) == 3
        assert not set(ports.values()) & {cluster.address(one)[1] for one in (1, 2, 3)}
        servers = proxy.bootstrap_servers
        await make_topics(cluster.bootstrap_servers, "t")
        for version in (0, 5, 12):
            response = await call(servers, MetadataRequest(topics=[MetadataRequestTopic(name="t")]), version)
            assert {one.node_id: one.port for one in response.brokers} == ports
        described = await call(servers, DescribeClusterRequest(include_cluster_authorized_operations=False))
        assert {one.broker_id: one.port for one in described.brokers} == ports
        for version in (0, 3, 4, 6):
            request = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
            response = await call(servers, request, version)
            found = response.coordinators[0] if version >= 4 else response
            assert found.port == ports[found.node_id] and found.host == "127.0.0.1"


async def test_an_advertised_port_is_that_of_the_first_port_and_the_others_follow() -> None:
    first = adjacent_free_ports(4)
    async with proxied(3, port=first, advertised_host="kafka.example", advertised_port=9092) as (_, proxy):
        assert proxy.bootstrap_servers == "kafka.example:9092"
        response = await call(f"127.0.0.1:{first}", MetadataRequest(topics=[]))
        assert {one.host for one in response.brokers} == {"kafka.example"}
        ports = sorted(one.port for one in response.brokers)
        assert ports == [9092, 9093, 9094]
        assert sorted(row["port"] for row in proxy.nodes()) == ports


async def test_request_to_wrong_leader_is_redirected_to_a_port_of_proxy() -> None:
    async with proxied(2) as (cluster, proxy):
        await make_topics(cluster.bootstrap_servers, "t", partitions=1)
        known = await call(cluster.bootstrap_servers.split(",")[0], MetadataRequest(topics=None))
        (topic,) = [one for one in known.topics if one.name == "t"]
        leader = topic.partitions[0].leader_id
        ports = {row["node"]: row["port"] for row in proxy.nodes()}
        other = f"127.0.0.1:{ports[3 - leader]}"
        data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch(b"x"))])]
        produced = await call(
            other, ProduceRequest(transactional_id=None, acks=1, timeout_ms=5000, topic_data=data), version=11
        )
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        wanted = [FetchTopic(topic_id=topic.topic_id, partitions=[part])]
        fetched = await call(other, FetchRequest(max_wait_ms=0, min_bytes=1, topics=wanted), version=17)
        for answer in (produced, fetched):
            assert [(one.node_id, one.port) for one in answer.node_endpoints] == [(leader, ports[leader])]


async def test_rule_hits_one_partition_of_three_and_unhit_rule_fails() -> None:
    async with proxied(3) as (cluster, proxy):
        await make_topics(proxy.bootstrap_servers, "orders")
        async with Producer(proxy.bootstrap_servers, client_id="shop") as producer:
            with proxy.faults(
                api="Produce", topic="orders", partition=1, error="NOT_LEADER_OR_FOLLOWER", times=2
            ) as rule:
                sent = [await producer.send("orders", b"x", partition=one) for one in range(3)]
                assert [(await one).offset for one in sent] == [0, 0, 0]
            assert rule.hits == 2
            with pytest.raises(RuleNeverHit), proxy.faults(api="Produce", topic="invoices", hold=True):
                await producer.send_and_wait("orders", b"y", partition=0)
        kinds = [one.kind for one in proxy.events.after(0)]
        assert kinds.count("broker") == 3 and kinds.count("fault") == 2
        assert all(door.dispatcher is door.upstream_dispatcher for door in proxy.ports), "without rules nothing is read"
        assert not cluster.has_rules


async def test_held_request_delays_later_ones() -> None:
    async with proxied(1) as (_, proxy):
        connection = await Connection.open(*place(proxy.bootstrap_servers), client_id="app")
        gate = proxy.faults.add(api="Metadata", hold=True, times=1)
        first = asyncio.create_task(connection.call(MetadataRequest(topics=[])))
        await gate.wait_hit()
        second = asyncio.create_task(connection.call(FindCoordinatorRequest(key="g", coordinator_keys=["g"])))
        done, _ = await asyncio.wait([first, second], timeout=0.2)
        assert not done and gate.held == 1
        gate.release()
        assert (await first).brokers and (await second).coordinators
        await connection.close()


async def test_topic_rule_hits_a_fetch_session_that_started_before_it() -> None:
    async with proxied(1) as (_, proxy):
        await make_topics(proxy.bootstrap_servers, "t", partitions=1)
        consumer = Consumer(
            "t",
            bootstrap_servers=proxy.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
        )
        async with consumer, Producer(proxy.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"before")
            while not await consumer.getmany(timeout_ms=1000):
                pass
            with proxy.faults(api="Fetch", topic="t", delay_ms=10) as rule:
                await rule.wait_hit(2)
            with proxy.faults(api="Fetch", topic="other", delay_ms=10, optional=True) as other:
                await producer.send_and_wait("t", b"after")
                assert await consumer.getmany(timeout_ms=10_000)
            assert other.hits == 0


async def test_truncated_and_silent_responses_are_produced() -> None:
    async with proxied(1) as (_, proxy):
        await make_topics(proxy.bootstrap_servers, "t", partitions=1)
        for said in (
            {"disconnect": "middle"},
            {"disconnect": "before"},
            {"truncate": 3},
            {"wrong_correlation_id": True},
        ):
            with proxy.faults(api="Produce", times=1, **said) as rule:
                async with Producer(proxy.bootstrap_servers) as producer:
                    await producer.send_and_wait("t", b"x")
            assert rule.hits == 1, said
        with proxy.faults(api="ListGroups", silence=True) as rule, pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await call(proxy.bootstrap_servers, ListGroupsRequest(states_filter=[], types_filter=[]))
        assert rule.hits == 1


async def test_rules_for_our_cluster_and_unknown_brokers_are_refused() -> None:
    async with proxied(2) as (_, proxy):
        with pytest.raises(InvalidRule, match="cannot kill"):
            proxy.faults.add(api="Produce", node="kill")
        with pytest.raises(InvalidRule, match="there is no broker 7; there are 1, 2"):
            proxy.faults.add(api="Produce", brokers=[7], hold=True)


async def test_rule_may_name_any_broker_before_metadata_is_known() -> None:
    async with Cluster(1) as cluster:
        proxy = Proxy(settings(cluster.bootstrap_servers))
        rule = proxy.faults.add(api="Metadata", brokers=[1], delay_ms=1)
        async with proxy:
            assert (await call(proxy.bootstrap_servers, MetadataRequest(topics=[]))).brokers
            assert rule.hits == 1
            with pytest.raises(InvalidRule, match="there is no broker 2; there are 1"):
                proxy.faults.add(api="Metadata", brokers=[2], delay_ms=1)


async def test_broker_that_joins_later_gets_a_port_and_moved_one_keeps_it() -> None:
    async with proxied(1) as (cluster, proxy):
        before = proxy.ports.brokers[1].port
        proxy.ports.add_broker(2, "127.0.0.1", 1)
        proxy.ports.add_broker(1, "127.0.0.1", 2)
        assert proxy.ports.brokers[1].port == before and proxy.ports.brokers[1].upstream == ("127.0.0.1", 2)
        assert proxy.node_ids == [1, 2]
        proxy.ports.add_broker(1, *cluster.address(1))
        with proxy.faults(api="Metadata", brokers=[1], delay_ms=1):
            assert (await call(proxy.bootstrap_servers, MetadataRequest(topics=[]))).brokers


@pytest.mark.parametrize("place", [("127.0.0.1", 70_000), ("x" * 300, 9092), (".", 9092)])
async def test_invalid_broker_address_of_upstream_is_reported(
    place: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    async with proxied(1) as (_, proxy):
        proxy.ports.add_broker(2, *place)
        with pytest.raises((ConnectionError, TimeoutError)):
            await call(f"127.0.0.1:{proxy.ports.brokers[2].port}", MetadataRequest(topics=[]))
        assert "does not respond" in caplog.text
        assert (await call(proxy.bootstrap_servers, MetadataRequest(topics=[]))).brokers


async def test_unavailable_upstream_is_reported_once_and_reconnected(caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(60):
        async with Cluster(1) as first:
            port = first.address(1)[1]
            async with Proxy(settings(f"127.0.0.1:{port}")) as proxy:
                await first.stop()
                for _ in range(3):
                    with pytest.raises((ConnectionError, TimeoutError)):
                        await call(proxy.bootstrap_servers, MetadataRequest(topics=[]))
                warnings = [one.message for one in caplog.records if "does not respond" in one.message]
                assert len(warnings) == 1 and f"127.0.0.1:{port}" in warnings[0]
                async with Cluster(1, port=port):
                    assert (await call(proxy.bootstrap_servers, MetadataRequest(topics=[]))).brokers
                assert any("responds again" in one.message for one in caplog.records)


async def test_proxy_may_start_before_its_upstream() -> None:
    async with asyncio.timeout(60):
        async with Cluster(1) as gone:
            port = gone.address(1)[1]
        proxy = Proxy(settings(f"127.0.0.1:{port}"))
        starting = asyncio.create_task(proxy.start())
        async with Cluster(1, port=port):
            await starting
            await until(lambda: proxy.node_ids == [1])
        await proxy.stop()


async def test_unknown_fetch_session_gets_fetch_session_id_not_found() -> None:
    async with proxied(1) as (cluster, proxy):
        await make_topics(cluster.bootstrap_servers, "t", partitions=1)
        proxy.faults.add(api="Fetch", topic="t", delay_ms=1)
        request = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=77, session_epoch=5, topics=[])
        assert (await call(proxy.bootstrap_servers, request)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
