"""Requests are timed while a page is open; afterwards each node has its original dispatcher."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Admin, Cluster, NewTopic, Producer
from anabranch.dashboard import traffic as module
from anabranch.dashboard.traffic import TimedDispatcher, Traffic
from anabranch.faults.rule import Rule


def quiet(kind: str, **detail: object) -> None:
    """Nobody listens."""


async def test_requests_are_counted_and_dispatchers_restored() -> None:
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        node = cluster.nodes[1]
        plain = node.server.dispatcher
        traffic = Traffic(asyncio.get_running_loop().time, quiet)
        traffic.watch(node)
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        with cluster.faults(Rule(api=("Produce",), delay_ms=(30.0,))):  # which stands inside of it
            async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await producer.send_and_wait("t", b"x")
            taken = traffic.take()
            assert isinstance(node.server.dispatcher, TimedDispatcher)
        count, mean_ms, work_ms, longest_ms = taken["apis"]["Produce"]
        assert count == 1
        assert 30 <= mean_ms == longest_ms
        assert work_ms < mean_ms
        assert taken["nodes"][1] == sum(one[0] for one in taken["apis"].values())
        assert "Produce" not in traffic.take()["apis"]
        traffic.stop()
        assert node.server.dispatcher is plain


async def test_dispatcher_wrapped_later_is_kept() -> None:
    async with Cluster(1) as cluster:
        node = cluster.nodes[1]
        plain = node.server.dispatcher
        inner, outer = Traffic(asyncio.get_running_loop().time, quiet), Traffic(asyncio.get_running_loop().time, quiet)
        inner.watch(node)
        outer.watch(node)
        inner.stop()
        assert node.server.dispatcher.inner is plain
        outer.stop()
        assert node.server.dispatcher is plain


async def test_slow_requests_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW_S", 0.02)
    published = []
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        traffic = Traffic(asyncio.get_running_loop().time, lambda kind, **detail: published.append((kind, detail)))
        traffic.watch(cluster.nodes[1])
        with cluster.faults(Rule(api=("CreateTopics",), delay_ms=(40.0,))):
            await admin.create_topics([NewTopic(name="t", partitions=1)])
        traffic.stop()
    kind, detail = next(one for one in published if one[1]["api"] == "CreateTopics")
    assert (kind, detail["node"]) == ("slow request", 1)
    assert detail["ms"] >= 40
