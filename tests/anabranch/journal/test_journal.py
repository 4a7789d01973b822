"""Exchanges of a real cluster are found by subject, with the rules that hit them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.cluster.in_process import Cluster
from anabranch.faults.rule_json import InvalidRule
from anabranch.journal.journal import Journal
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.anabranch.faults.test_faults import connected, groups


@asynccontextmanager
async def watched(brokers: int = 1, size: int = 100) -> AsyncIterator[tuple[Cluster, Journal]]:
    async with Cluster(brokers, seed=1) as cluster, asyncio.timeout(60):
        journal = Journal(size, cluster.node_ids)
        cluster.on_node(journal.watch)
        yield cluster, journal


async def test_exchanges_are_found_by_query() -> None:
    async with watched() as (cluster, journal):
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name="orders", partitions=2)])
        async with Producer(cluster.bootstrap_servers, client_id="shop") as producer:
            await producer.send_and_wait("orders", b"x", partition=1)
        assert journal.count(api="Produce", topic="orders", partition=1) == 1
        assert journal.count(api="Produce", partition=0) == 0
        (one,) = journal.entries(api="Produce", client_id="sh*")
        row = one.row()
        assert row["outcome"] == "answered" and row["errors"] == [] and row["ms"] >= 0 and row["node"] == 1
        assert row["request"]["topic_data"][0]["partition_data"][0]["records"]["records"] == 1
        assert journal.count(topic="orders", api="Metadata") >= 1
        assert journal.count(after=journal.newest) == 0 and len(journal.entries(limit=2)) == 2
        journal.clear()
        assert list(journal) == []


async def test_exchange_that_names_a_topic_by_id_is_found_after_the_topic_is_deleted() -> None:
    async with watched() as (cluster, journal), Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="orders", partitions=1)])
        topic_id = (await admin.describe_topic("orders")).topic_id
        requested = FetchTopic(
            topic_id=topic_id, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)]
        )
        async with connected(cluster) as connection:
            await connection.call(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[requested]))
        await admin.delete_topics(["orders"])
        assert journal.count(api="Fetch", topic="orders", partition=0) == 1


async def test_rules_added_before_or_after_are_recorded() -> None:
    async with watched() as (cluster, journal), connected(cluster) as connection:
        cluster.faults.on_hit(journal.on_hit)
        plain = cluster.nodes[1].server.dispatcher.inner
        with cluster.faults(name="no", api="ListGroups", error="COORDINATOR_NOT_AVAILABLE", times=1):
            assert await groups(connection) == 15
        (one,) = journal.entries(rule="no")
        assert one.errors == ("COORDINATOR_NOT_AVAILABLE",) and journal.count(error="COORDINATOR_NOT_AVAILABLE") == 1
        assert cluster.nodes[1].server.dispatcher.inner is plain and type(plain) is Dispatcher
        with cluster.faults(api="ListGroups", disconnect="after"), pytest.raises(ConnectionError):
            await groups(connection)
        assert journal.count(api="ListGroups", outcome="closed") == 1


async def test_clients_and_brokers_have_separate_capacity() -> None:
    async with watched(brokers=2, size=3) as (cluster, journal):
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name="orders", partitions=1)])
        await journal.wait_for(3, between_brokers=True)
        async with connected(cluster) as connection:
            for _ in range(5):
                await groups(connection)
        assert [one.view.request.api.name for one in journal.entries()] == ["ListGroups"] * 3
        assert journal.count(between_brokers=True) == 3
        numbers = [one.number for one in journal]
        assert numbers == sorted(numbers) and journal.newest >= numbers[-1]


async def test_exchange_is_awaited() -> None:
    async with watched() as (cluster, journal), connected(cluster) as connection:
        waiting = asyncio.create_task(journal.wait_for(2, api="ListGroups"))
        await groups(connection)
        assert not waiting.done()
        await groups(connection)
        assert len(await waiting) == 2
        with pytest.raises(TimeoutError, match="after 0 s 2 of 3 such exchanges"):
            await journal.wait_for(3, timeout_s=0, api="ListGroups")
        with pytest.raises(TimeoutError, match="after 0 s 2 of 999 such exchanges; the journal keeps the last "):
            await journal.wait_for(999, timeout_s=0, api="ListGroups")
        with pytest.raises(InvalidRule, match="unknown API"):
            await journal.wait_for(api="ListGroup")


async def test_exchanges_are_found_by_the_broker_that_serves_them_and_by_link() -> None:
    async with watched(brokers=2) as (cluster, journal):
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name="orders", partitions=2, replication_factor=2)])
        for node_id in (1, 2):
            async with connected(cluster, node_id) as connection:
                await groups(connection)
            (one,) = journal.entries(api="ListGroups", brokers=node_id)
            assert one.view.at.node_id == node_id
        assert journal.count(api="ListGroups", brokers=(1, 2)) == 2
        asked = journal.entries(api="LeaderAndIsr", between_brokers=True)
        (controller,) = {one.view.asker for one in asked}
        links = [f"{controller}:{one.view.at.node_id}" for one in asked if one.view.at.node_id != controller]
        assert links and len(links) < len(asked), "the controller asks itself, too"
        assert journal.count(api="LeaderAndIsr", link=links) == len(links)


async def test_open_exchange_is_awaited_and_so_is_the_hit_of_a_rule_that_holds_it() -> None:
    async with watched() as (cluster, journal), connected(cluster) as connection:
        cluster.faults.on_hit(journal.on_hit)
        gate = cluster.faults.add(name="gate", api="ListGroups", hold=True)
        by_outcome = asyncio.create_task(journal.wait_for(api="ListGroups", outcome="open"))
        by_rule = asyncio.create_task(journal.wait_for(rule="gate", outcome="open"))
        ended = asyncio.create_task(journal.wait_for(api="ListGroups"))
        pending = asyncio.create_task(groups(connection))
        await gate.wait_hit()
        for waiting in (by_outcome, by_rule):
            (one,) = await asyncio.wait_for(waiting, 5)
            assert one.outcome == "open"
        assert not ended.done(), "a wait that names no outcome gets the response, too"
        gate.release()
        await pending
        assert [one.outcome for one in await ended] == ["answered"]


async def test_open_exchange_is_included() -> None:
    async with watched() as (cluster, journal), connected(cluster) as connection:
        gate = cluster.faults.add(api="ListGroups", hold=True)
        pending = asyncio.create_task(groups(connection))
        await gate.wait_hit()
        assert journal.count(api="ListGroups", outcome="open") == 1
        gate.release()
        await pending
        assert journal.count(api="ListGroups", outcome="answered") == 1
