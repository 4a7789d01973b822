"""Start offsets: the reset policy, and rule R20 for partitions of a resize."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch import Consumer, ConsumerGroupMetadata, Producer, TopicPartition
from anabranch.clients.config import NetworkConfig, parse_servers
from anabranch.clients.consumer.classic_group_membership import Assigned
from anabranch.clients.consumer.joiner import Joiner
from anabranch.clients.consumer.offset_lookup import OffsetResets
from anabranch.clients.consumer.starting_positions import StartingPositions
from anabranch.clients.network import Network, make_rng
from anabranch.cluster.in_process import Cluster
from anabranch.controller.settings import ControllerSettings
from anabranch.protocol.apis.list_offsets import ListOffsetsRequest
from anabranch.protocol.apis.offset_fetch import OffsetFetchRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.clients.consumer.groups import TOPIC, History, cluster_and_admin, make_topic, readers, resize, send

WHERE = TopicPartition(TOPIC, 0)


def settings(cluster: Cluster, **rest: Any) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "fetch_max_wait_ms": 20, **rest}


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [0, 1, 2]), ("latest", [2])])
async def test_reset_policy_determines_start(policy: str, expected: list[int]) -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 2)
            async with Consumer(TOPIC, **settings(cluster, auto_offset_reset=policy)) as consumer:
                offsets: list[int] = []
                sent = False
                while len(offsets) < len(expected):
                    for records in (await consumer.getmany(timeout_ms=20)).values():
                        offsets += [record.offset for record in records]
                    if consumer.position(WHERE) == 2 and not sent:
                        assert await consumer.committed(WHERE) in (0, 2), "R10: a start is committed at once"
                        await send(producer, admin, 1)
                        sent = True
                assert offsets == expected


async def test_without_reset_policy_application_decides() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        async with (
            Producer(cluster.bootstrap_servers, audit=True) as producer,
            Consumer(TOPIC, **settings(cluster, auto_offset_reset="none")) as consumer,
        ):
            await send(producer, admin, 5)
            for _ in range(2):
                with pytest.raises(KafkaError, match="auto_offset_reset is none") as refused:
                    await consumer.getmany(timeout_ms=60_000)
                assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
            consumer.seek(WHERE, 3)
            assert [one.offset for one in (await consumer.getmany(timeout_ms=60_000))[WHERE]] == [3, 4]
            consumer.seek(WHERE, 99)
            with pytest.raises(KafkaError, match="auto_offset_reset is none"):
                while True:
                    assert not await consumer.getmany(timeout_ms=200)
            consumer.seek(WHERE, 4)
            assert (await consumer.getone()).offset == 4


@pytest.mark.parametrize("rule", [True, False], ids=["with the rule", "without"])
async def test_r20_child_is_read_from_its_start_by_any_member(rule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group with `latest`; the child goes to a member without earlier reads of the topic."""
    if not rule:

        async def nothing(self: StartingPositions, fresh: object, committed: object) -> set[str]:
            return set()

        monkeypatch.setattr(StartingPositions, "_read_until", nothing)
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 10)
            # Metadata is not asked for by itself: the child has records long before anybody looks.
            async with readers(history, 2, auto_offset_reset="latest", metadata_max_age_ms=300_000) as members:
                await history.until(lambda: sorted(len(one.owned) for one in members) == [0, 1])
                await history.until(lambda: history.committed(0) == 10)
                for one in members:
                    await one.pause()
                await resize(admin, 2)
                await send(producer, admin, 40)
                for one in members:
                    one.go_on.set()
                await history.until(lambda: all(one.owned for one in members))
                if rule:
                    await history.until(lambda: len(history.distinct) == 40)
                    history.judge((await admin.describe_topic(TOPIC)).lineage, 40)  # type: ignore[arg-type]
                else:
                    with pytest.raises(TimeoutError):
                        await history.until(lambda: len(history.distinct) == 40, timeout_s=1)


@pytest.mark.parametrize("rule", [True, False], ids=["with the rule", "without"])
async def test_r19_member_waits_for_metadata_of_its_leader(rule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One member's metadata is old. Without the rule it takes a child without knowing."""
    if not rule:

        async def satisfied(self: Joiner, assigned: Assigned) -> Assigned:
            return assigned

        monkeypatch.setattr(Joiner, "_learn", satisfied)
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 10)
            async with readers(history, 2, auto_offset_reset="latest") as members:
                await history.until(lambda: sorted(len(one.owned) for one in members) == [0, 1])
                await history.until(lambda: history.committed(0) == 10)
                lagging = next(one for one in members if not one.owned)
                updater = lagging.consumer._network._updater
                apply, updater.apply = updater.apply, lambda response: None  # type: ignore[method-assign]
                generation = lagging.consumer._session.membership.generation  # type: ignore[union-attr]
                await resize(admin, 2)
                await send(producer, admin, 40)
                membership = lagging.consumer._session.membership  # type: ignore[union-attr]
                await history.until(lambda: membership.generation > generation and membership.state.value == "stable")
                if rule:
                    assert lagging.owned == set(), "not before it knows what it was given"
                else:
                    await history.until(lambda: lagging.owned == {1})
                updater.apply = apply  # type: ignore[method-assign]
                await history.until(lambda: len(history.distinct) == 40)
                history.judge((await admin.describe_topic(TOPIC)).lineage, 40)  # type: ignore[arg-type]


def asks_for_second_partition(request: Any) -> bool:
    return isinstance(request, ListOffsetsRequest) and "partition_index=1" in str(request)


def asks_for_commits(request: Any) -> bool:
    return isinstance(request, OffsetFetchRequest)


@pytest.mark.parametrize(("is_lost", "meanwhile"), [(asks_for_second_partition, {0}), (asks_for_commits, set[int]())])
async def test_node_that_does_not_answer_is_asked_again_while_others_are_read(
    is_lost: Callable[[Any], bool], meanwhile: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_and_admin(brokers=2) as (cluster, admin):  # each leads one partition
        await make_topic(admin, 2)
        async with (
            Producer(cluster.bootstrap_servers, audit=True) as producer,
            Consumer(TOPIC, request_timeout_ms=1000, **settings(cluster, auto_offset_reset="earliest")) as consumer,
        ):
            await send(producer, admin, 20)
            call, lost = consumer._network.call, list[str]()

            async def cut_off(node_id: int, request: Any, **more: Any) -> Any:
                if is_lost(request):
                    lost.append(str(request))
                    raise ConnectionRefusedError("the node is not reachable")
                return await call(node_id, request, **more)

            monkeypatch.setattr(consumer._network, "call", cut_off)
            read: set[int] = set()
            while len(lost) < 3 or read != meanwhile:
                read |= {one.partition for one in await consumer.getmany(timeout_ms=100)}
            monkeypatch.undo()
            while read != {0, 1}:
                read |= {one.partition for one in await consumer.getmany(timeout_ms=100)}


async def test_partition_removed_during_start_lookup_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its leader is still in the metadata and does not respond; other partitions must not wait."""
    real = ControllerSettings.__init__
    monkeypatch.setattr(
        ControllerSettings,
        "__init__",
        lambda self, *args, **given: real(self, *args, **{**given, "drained_check_interval_ms": 50}),
    )
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        network = Network(NetworkConfig(bootstrap_servers=parse_servers(cluster.bootstrap_servers)), make_rng(None))
        network.follow(TOPIC)
        await network.start()
        try:
            await resize(admin, 1)
            await admin.wait_until(lambda metadata: sorted(metadata.topics[TOPIC].partitions) == [0], TOPIC)
            both = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
            assert sorted(network.metadata.topics[TOPIC].partitions) == [0, 1], "it does not know yet"
            async with asyncio.timeout(60):
                assert await OffsetResets("earliest").find(network, both, set()) == {both[0]: 0}
        finally:
            await network.close()


async def test_offset_of_an_open_transaction_has_to_be_asked_for_again() -> None:
    """The transaction decides where the group continues (KIP-447)."""
    async with cluster_and_admin(
        brokers=1, transaction_state_log_replication_factor="1", transaction_state_log_min_isr="1"
    ) as (cluster, admin):
        await make_topic(admin, 1)
        async with Producer(cluster.bootstrap_servers, transactional_id="copier") as copier:
            await copier.begin_transaction()
            await copier.send_offsets_to_transaction({WHERE: 3}, ConsumerGroupMetadata("g"))
            async with Consumer(TOPIC, **settings(cluster)) as consumer:
                while consumer.assignment() != {WHERE}:
                    await consumer.getmany(timeout_ms=20)
                starting = consumer._polling._starting
                assert not await starting.find()
                await copier.commit_transaction()
                while not await starting.find():
                    pass
                assert consumer.position(WHERE) == 3
