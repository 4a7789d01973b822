"""Ownership of partitions: groups with another leader, deleted partitions, lagging leaders."""

from __future__ import annotations

import pytest

from anabranch import Producer
from anabranch.controller.settings import ControllerSettings
from tests.clients.consumer.groups import TOPIC, History, cluster_and_admin, make_topic, readers, resize, send
from tests.clients.consumer.librdkafka_member import LibrdkafkaMember


@pytest.mark.interop
async def test_group_led_by_another_client_reads_everything() -> None:
    """It has no generations and gates; this member still waits for parents, and everything is read."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        history = History(cluster)
        other = LibrdkafkaMember(cluster, "range")
        other.start()
        try:
            async with Producer(cluster.bootstrap_servers, audit=True) as producer:
                await history.until(lambda: len(other.owned) == 2)
                async with readers(history, 1) as (ours,):
                    await history.until(lambda: len(other.owned) == len(ours.owned) == 1)
                    assert not ours.consumer._session.membership.is_leader  # type: ignore[union-attr]
                    assert ours.consumer._session.membership.protocol == "range"  # type: ignore[union-attr]
                    await send(producer, admin, 100)
                    await resize(admin, 4)
                    await send(producer, admin, 100)
                    await history.until(lambda: len(history.distinct | set(other.read)) == 200)
                    assert [one for one in history.wrong if one.startswith("I4'")] == []
                await other.end()
        finally:
            await other.end()


async def test_drained_partition_is_removed_and_its_gate_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The merge target's gate waits for it; a removed partition counts as read (K613)."""
    real = ControllerSettings.__init__
    monkeypatch.setattr(
        ControllerSettings,
        "__init__",
        lambda self, *args, **given: real(self, *args, **{**given, "drained_check_interval_ms": 50}),
    )
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        history = History(cluster)
        async with (
            Producer(cluster.bootstrap_servers, audit=True) as producer,
            readers(history, 2, pause_s=0.01, batch=10) as members,
        ):
            for _ in range(40):
                await producer.send(TOPIC, b"x", b"of partition 0", partition=0)
            await producer.flush()
            await resize(admin, 1)
            await admin.wait_until(lambda metadata: sorted(metadata.topics[TOPIC].partitions) == [0], TOPIC)
            await send(producer, admin, 40)
            await history.until(lambda: len(history.distinct) == 80)
            await history.until(lambda: sorted(len(one.owned) for one in members) == [0, 1])
            assert [one.gated for one in members] == [set(), set()]
            assert not [one for one in members if one.consumer._core.gates.requested_ends]
            assert history.wrong == []


async def test_member_with_newer_metadata_requests_rebalance() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        history = History(cluster)
        async with (
            Producer(cluster.bootstrap_servers, audit=True) as producer,
            readers(history, 2, metadata_max_age_ms=300_000) as members,
        ):
            await history.until(lambda: sorted(len(one.owned) for one in members) == [0, 1])
            leader = next(one for one in members if one.consumer._session.membership.is_leader)  # type: ignore[union-attr]
            follower = next(one for one in members if one is not leader)
            updater = leader.consumer._network._updater
            apply, updater.apply = updater.apply, lambda response: None  # type: ignore[method-assign]
            await resize(admin, 2)
            rounds = follower.consumer._session.membership.generation  # type: ignore[union-attr]
            follower.consumer._network.request_refresh()
            await history.until(
                lambda: follower.consumer._session.membership.generation > rounds  # type: ignore[union-attr]
            )
            assert leader.owned | follower.owned <= {0}
            updater.apply = apply  # type: ignore[method-assign]
            await history.until(lambda: leader.owned | follower.owned == {0, 1})
            await send(producer, admin, 20)
            await history.until(lambda: len(history.distinct) == 20)
