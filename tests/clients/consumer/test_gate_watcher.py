"""Requests for gates on a real cluster: several cuts of one partition, dead leaders, deleted topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch import NewTopic, Producer
from anabranch.clients.config import NetworkConfig, parse_servers
from anabranch.clients.consumer.gate import TopicGate
from anabranch.clients.consumer.gate_watcher import GateWatcher
from anabranch.clients.consumer.topic_gates import Gates
from anabranch.clients.metadata import ClusterMetadata
from anabranch.clients.network import Network, make_rng
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.lineage import KeyEpoch
from anabranch.protocol.order_gates import UNKNOWN
from tests.clients.consumer.groups import TOPIC, History, Reader, cluster_and_admin, make_topic, readers, resize, send


@asynccontextmanager
async def keeping(cluster: Cluster, changed: asyncio.Event) -> AsyncIterator[tuple[GateWatcher, Gates]]:
    network = Network(NetworkConfig(bootstrap_servers=parse_servers(cluster.bootstrap_servers)), make_rng(None))
    network.follow(TOPIC)
    await network.start()
    gates = Gates(ordered=True)
    network.on_metadata(gates.refresh)
    gates.refresh(network.metadata)
    keeper = GateWatcher(network, gates, None, changed)
    keeper.start()
    try:
        yield keeper, gates
    finally:
        await keeper.close()
        await network.close()


async def ends(gate: TopicGate, changed: asyncio.Event, *key_epochs: KeyEpoch) -> list[int]:
    async with asyncio.timeout(60):
        while any(gate.end(key_epoch) == UNKNOWN for key_epoch in key_epochs):
            changed.clear()
            await changed.wait()
    return [gate.end(key_epoch) for key_epoch in key_epochs]


async def test_r7_each_cut_of_a_partition_has_its_own_end() -> None:
    """Two resizes before a lookup: both ends of partition 0 are needed."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        async with Producer(cluster.bootstrap_servers) as producer:
            for count in (2, 4):
                await send(producer, admin, 20)
                await resize(admin, count)
            await send(producer, admin, 20)
        changed = asyncio.Event()
        async with keeping(cluster, changed) as (keeper, gates):
            gate = gates.gate(TOPIC)
            assert gate is not None
            first, second = KeyEpoch(0, 0), KeyEpoch(0, 1)
            gates.want_end(TOPIC, second)
            gates.want_end(TOPIC, first)
            keeper.refresh()
            before, after = await ends(gate, changed, first, second)
            assert before == 20
            assert before < after < 40


async def test_partition_without_leader_does_not_delay_others() -> None:
    async with cluster_and_admin(brokers=2) as (cluster, admin):
        await admin.create_topics([NewTopic(name=TOPIC, assignments={0: [1], 1: [2]})])
        await admin.wait_for_topic(TOPIC)
        await resize(admin, 4)
        await cluster.stop_broker(1)
        changed = asyncio.Event()
        async with keeping(cluster, changed) as (keeper, gates):
            gate = gates.gate(TOPIC)
            assert gate is not None
            for index in (0, 1):
                gates.want_end(TOPIC, KeyEpoch(index, 0))
            keeper.refresh()
            assert await ends(gate, changed, KeyEpoch(1, 0)) == [0]
            assert gate.end(KeyEpoch(0, 0)) == UNKNOWN
            await cluster.start_broker(1)
            keeper._network.request_refresh()
            assert await ends(gate, changed, KeyEpoch(0, 0)) == [0]


async def test_gates_report_awaited_commits_and_waiting_time() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 20)
            await resize(admin, 2)
            await send(producer, admin, 20)
            async with readers(history, 1, batch=1, pause_s=0.005) as (reader,):
                await history.until(lambda: reader.gated == {1})
                view = str(reader.consumer.gates()[0])
                assert view.startswith("t-1@1 waits for 0@0 to reach ")
                await history.until(lambda: len(history.distinct) == 40)
                assert reader.consumer.gates() == []
                (opening,) = reader.consumer.gate_openings()
                assert (opening.topic, opening.key_epoch) == (TOPIC, KeyEpoch(1, 1))
                assert opening.opened_at_s > opening.closed_at_s


@pytest.mark.parametrize("known", ["nothing", "an older generation"])
async def test_end_stays_requested_while_metadata_is_older_than_gate(known: str) -> None:
    """A dropped request would be repeated at once, for as long as the broker does not know the topic."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        old = await admin.describe_topic(TOPIC)
        await resize(admin, 2)
        await resize(admin, 1)
        changed = asyncio.Event()
        async with keeping(cluster, changed) as (keeper, gates):
            network, gate = keeper._network, gates.gate(TOPIC)
            assert gate is not None
            newest = network.metadata
            network._updater.metadata = ClusterMetadata(
                nodes=newest.nodes, topics={} if known == "nothing" else {TOPIC: old}
            )
            gates.refresh(network.metadata)
            gates.want_end(TOPIC, KeyEpoch(1, 1))
            assert await keeper._ask_ends(), "it is asked again after a while"
            keeper.refresh()
            assert await ends(gate, changed, KeyEpoch(1, 1)) == [0], "newer metadata was requested"


@asynccontextmanager
async def keeping_split_topic() -> AsyncIterator[tuple[GateWatcher, Gates]]:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        await resize(admin, 2)
        async with keeping(cluster, asyncio.Event()) as (keeper, gates):
            yield keeper, gates


async def test_end_of_removed_partition_is_not_requested_any_more() -> None:
    async with keeping_split_topic() as (keeper, gates):
        gates.want_end(TOPIC, KeyEpoch(7, 1))
        assert not await keeper._ask_ends()
        assert not gates.requested_ends


async def test_deleted_topic_leaves_no_gate_state() -> None:
    async with keeping_split_topic() as (keeper, gates):
        old = gates.gate(TOPIC)
        assert not gates.passes(TOPIC, KeyEpoch(1, 1), 0.0)
        metadata = keeper._network.metadata
        topic = metadata.topics[TOPIC]
        reborn = type(topic)(
            name=TOPIC,
            topic_id=b"x" * 16,
            partitions=topic.partitions,
            lineage=type(topic.lineage)(1, [(0, 1)]),  # type: ignore[call-arg,arg-type]
        )
        gates.refresh(type(metadata)(nodes=metadata.nodes, topics={TOPIC: reborn}))
        new = gates.gate(TOPIC)
        assert new is not old
        assert new is not None
        assert new.lineage.generation == 0
        assert gates.views() == []
        assert not gates.requested_ends


async def test_exception_of_background_task_reaches_application(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 4)
            await resize(admin, 2)
            await send(producer, admin, 4)

            async def broken(self: GateWatcher) -> bool:
                raise LookupError("a bug")

            monkeypatch.setattr(GateWatcher, "_ask_ends", broken)
            reader = await Reader("r", history).start()
            assert reader.task is not None
            with pytest.raises(LookupError, match="a bug"):
                await reader.task
            await reader.consumer.stop()
