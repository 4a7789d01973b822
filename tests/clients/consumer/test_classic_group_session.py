"""The session with a coordinator under failures: lost memberships, moved coordinators, stale responses, outages.

Against a real cluster; where a test needs it, what the coordinator thinks of a member changes behind its back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from anabranch import Consumer, Producer, TopicPartition
from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.clients.consumer.classic_group_membership import State
from anabranch.clients.consumer.classic_group_session import ClassicGroupSession
from anabranch.clients.consumer.consumer_partition_assignor import MemberAssignment, MemberView, PartitionAssignor
from anabranch.clients.metadata import ClusterMetadata
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.join_group import JoinGroupRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.replication.replica_cluster import until
from tests.clients.consumer.groups import (
    GROUP,
    TOPIC,
    Callback,
    History,
    Reader,
    cluster_and_admin,
    make_topic,
    readers,
    resize,
    send,
    throw_out,
)

WHERE = TopicPartition(TOPIC, 0)


def consumer_of(cluster: Cluster, **settings: Any) -> Consumer:
    defaults: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": GROUP,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 30,
        "fetch_max_wait_ms": 20,
    }
    return Consumer(TOPIC, **{**defaults, **settings})


def session_of(consumer: Consumer) -> ClassicGroupSession:
    assert consumer._session is not None
    return consumer._session


async def throw_out_of_its_group(consumer: Consumer) -> None:
    await throw_out(consumer._network, GROUP, session_of(consumer).membership.member_id)


async def test_removed_member_commits_nothing_and_rejoins() -> None:
    """Its empty group would accept a commit without a generation."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 10)
            reader = Reader("zombie", history, auto_commit_interval_ms=60_000)
            async with reader.consumer as consumer:
                assert len((await consumer.getmany(timeout_ms=60_000))[WHERE]) == 10
                await throw_out_of_its_group(consumer)
                await history.until(lambda: not session_of(consumer).membership.stable)
                with pytest.raises(KafkaError) as refused:
                    await consumer.commit()
                assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID
                assert len((await consumer.getmany(timeout_ms=60_000))[WHERE]) == 10, "from where the group is"
                names = [event.name for event in history.events if isinstance(event, Callback)]
                assert names == ["assigned", "lost", "assigned"]
                assert history.committed(0) == 0, "where it began, and nothing else"


async def test_removed_member_does_not_flush() -> None:
    """Its application would overwrite newer state of the next owner."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 10)
            reader = Reader("zombie", history, enable_auto_commit=False)
            async with reader.consumer as consumer:
                assert len((await consumer.getmany(timeout_ms=60_000))[WHERE]) == 10
                await resize(admin, 2)
                await consumer._network.wait_for(lambda metadata: metadata.topics[TOPIC].generation == 1)
                await throw_out_of_its_group(consumer)
                await history.until(lambda: session_of(consumer).membership.lost)
                with pytest.raises(KafkaError) as refused:
                    await consumer.commit()
                assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID
            names = [event.name for event in history.events if isinstance(event, Callback)]
            assert names == ["assigned", "lost"]


async def test_generation_is_that_of_last_delivered_records() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        async with consumer_of(cluster, group_id=None) as alone:
            assert alone.generation == -1
            with pytest.raises(ValueError, match="needs a group_id"):
                await alone.check_membership()
        async with Producer(cluster.bootstrap_servers) as producer, consumer_of(cluster) as consumer:
            assert consumer.generation == -1
            with pytest.raises(KafkaError):
                await consumer.check_membership()
            await send(producer, admin, 10)
            await consumer.getmany(timeout_ms=60_000)
            token = consumer.generation
            assert token > 0
            await consumer.check_membership()
            await throw_out_of_its_group(consumer)
            while not session_of(consumer).membership.lost:  # noqa: ASYNC110 -- a state that nobody announces
                await asyncio.sleep(0.001)
            assert consumer.generation == token, "it still has what it was given then"
            with pytest.raises(KafkaError) as refused:
                await consumer.check_membership()
            assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            while not await consumer.getmany(timeout_ms=60_000):
                pass
            assert consumer.generation > token
            await consumer.check_membership()


async def test_membership_lost_while_crossing_boundary() -> None:
    """The flush takes so long that the group moves on: the boundary is not passed, and records are delivered again."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        history = History(cluster)
        reader = Reader("slow", history, auto_commit_interval_ms=60_000)
        thrown_out = False
        flush = reader.listener.on_partition_key_maybe_revoked

        async def slow_flush(partitions: Any) -> None:
            nonlocal thrown_out
            await flush(partitions)
            if not thrown_out:
                thrown_out = True
                await throw_out_of_its_group(reader.consumer)

        reader.listener.on_partition_key_maybe_revoked = slow_flush  # type: ignore[method-assign]
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 10)
            await admin.create_partitions(TOPIC, 2)
            await send(producer, admin, 10)
            await reader.start()
            await history.until(lambda: len(history.distinct) == 20)
            await history.until(lambda: history.committed(0) >= 10)
            await reader.stop()
            assert thrown_out
            assert len([one for one in history.deliveries if one.partition == 0 and one.offset < 10]) == 20
            assert history.wrong == []


async def test_heartbeats_continue_while_application_stops() -> None:
    """During a rebalance it is still busy, sends heartbeats, and keeps its membership and commit."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 10)
            async with readers(history, 1, auto_commit_interval_ms=60_000) as (busy,):
                await history.until(lambda: len(history.distinct) == 10)
                await busy.pause()
                member_id = session_of(busy.consumer).membership.member_id
                async with consumer_of(cluster) as second:
                    waiting = asyncio.create_task(second.getmany(timeout_ms=100))
                    await history.until(lambda: not session_of(busy.consumer).membership.stable)
                    slot = cluster.nodes[1].services.groups.table.find(GROUP)
                    assert slot is not None
                    for _ in range(3):  # its session begins anew each time that it is heard of
                        before = slot.group.members.by_id[member_id].session_deadline_ms
                        await history.until(
                            lambda before=before: slot.group.members.by_id[member_id].session_deadline_ms != before
                        )
                    assert not session_of(busy.consumer).membership.stable
                    busy.go_on.set()
                    await waiting
                    assert len(second.assignment()) == 1
                    assert session_of(busy.consumer).membership.member_id == member_id
                    assert "lost" not in [event.name for event in history.events if isinstance(event, Callback)]


async def test_member_that_exceeds_max_poll_interval_leaves() -> None:
    """Kafka's max.poll.interval.ms: heartbeats continue, but the application is stuck."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        async with consumer_of(cluster, rebalance_timeout_ms=200) as stuck, consumer_of(cluster) as other:
            async with asyncio.timeout(60):
                while stuck.assignment() != {WHERE}:
                    await stuck.getmany(timeout_ms=10)
                while not other.assignment():
                    await other.getmany(timeout_ms=50)
            assert session_of(stuck).membership.lost


async def test_static_member_keeps_assignment_and_is_fenced_by_successor() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        first = consumer_of(cluster, group_instance_id="desk-1")
        async with consumer_of(cluster, group_instance_id="desk-2") as other:
            await first.start()
            joining = asyncio.create_task(first.getmany(timeout_ms=100))
            while not (len(first.assignment()) == len(other.assignment()) == 1 and joining.done()):
                await other.getmany(timeout_ms=20)
            generation = session_of(other).membership.generation
            mine = first.assignment()
            # Away for a moment: nobody hears of it, nothing is reassigned.
            await first.stop()
            await other.getmany(timeout_ms=200)
            assert session_of(other).membership.generation == generation
            assert len(other.assignment()) == 1
            async with consumer_of(cluster, group_instance_id="desk-1") as again:
                joining = asyncio.create_task(again.getmany(timeout_ms=100))
                while not (joining.done() and again.assignment()):
                    await other.getmany(timeout_ms=20)
                assert again.assignment() == mine or len(again.assignment()) == 1
                # Another process with the same id: it takes over, and this one must not take it back.
                async with consumer_of(cluster, group_instance_id="desk-1") as usurper:
                    joining = asyncio.create_task(usurper.getmany(timeout_ms=100))
                    with pytest.raises(KafkaError) as fenced:
                        while True:
                            await other.getmany(timeout_ms=10)
                            await again.getmany(timeout_ms=10)
                    assert fenced.value.code == ErrorCode.FENCED_INSTANCE_ID
                    with pytest.raises(KafkaError):
                        await again.getmany()
                    while not joining.done():
                        await other.getmany(timeout_ms=20)
                    await joining
                    assert session_of(usurper).failure is None


async def test_static_member_that_a_poll_of_positions_calls_unknown_does_not_replace_its_successor() -> None:
    """No heartbeat comes between: they are a minute apart here, and the poll has no instance id."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        patient: dict[str, Any] = {
            "group_instance_id": "desk",
            "heartbeat_interval_ms": 60_000,
            "session_timeout_ms": 120_000,
        }
        async with consumer_of(cluster, **patient) as first:
            while not first.assignment():
                await first.getmany(timeout_ms=20)
            async with consumer_of(cluster, **patient) as successor:
                while not successor.assignment():
                    await successor.getmany(timeout_ms=20)
                with pytest.raises(KafkaError) as fenced:
                    while True:
                        await first.getmany(timeout_ms=10)
                assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID
                await successor.check_membership()


async def test_frozen_coordinator_is_given_up_when_the_session_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker may coordinate the group by then. `request_timeout_ms` is 40 s."""
    async with cluster_and_admin(brokers=1, timeout_s=20, group_min_session_timeout_ms="1000") as (cluster, admin):
        await make_topic(admin, 1)
        async with consumer_of(cluster, session_timeout_ms=1000) as consumer:
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=1000)
            call, unanswered = consumer._network.call, list[Any]()

            async def frozen(node_id: int, request: Any, *, timeout_ms: float | None = None, **more: Any) -> Any:
                if not isinstance(request, HeartbeatRequest):
                    return await call(node_id, request, timeout_ms=timeout_ms, **more)
                unanswered.append(request)
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await asyncio.Event().wait()
                raise AssertionError("nothing sets it")

            monkeypatch.setattr(consumer._network, "call", frozen)
            await until(lambda: len(unanswered) == 2)
            monkeypatch.undo()
            await until(lambda: session_of(consumer).membership.state is State.UNJOINED)
            while not session_of(consumer).membership.stable:
                await consumer.getmany(timeout_ms=100)


async def test_join_that_waits_at_a_frozen_coordinator_goes_on_at_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A join may wait for the rebalance timeout of 5 minutes."""
    async with cluster_and_admin(timeout_s=60, group_min_session_timeout_ms="1000") as (cluster, admin):
        await make_topic(admin, 1, replicas=3)
        async with consumer_of(cluster, session_timeout_ms=1000) as consumer:
            call, frozen, joining = consumer._network.call, set[int](), asyncio.Event()

            async def freezing(node_id: int, request: Any, **more: Any) -> Any:
                if isinstance(request, JoinGroupRequest) and request.member_id:
                    if not joining.is_set():
                        frozen.add(node_id)
                        joining.set()
                    if node_id in frozen:
                        await asyncio.Event().wait()
                return await call(node_id, request, **more)

            monkeypatch.setattr(consumer._network, "call", freezing)
            asking = asyncio.create_task(consumer.getone())
            await joining.wait()
            await cluster.crash_broker(*frozen)
            await until(lambda: bool(consumer.assignment()))
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


class Deliberate(PartitionAssignor):
    """An eager assignor that waits until the coordinator has extended its member's session twice."""

    name = "deliberate"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def assign(self, metadata: ClusterMetadata, members: Sequence[MemberView]) -> Mapping[str, MemberAssignment]:
        group = self._cluster.nodes[1].services.groups.group(GROUP)
        assert isinstance(group, ClassicGroup)
        (member,) = group.members
        for _ in range(2):
            before = member.session_deadline_ms
            await until(lambda before=before: member.session_deadline_ms != before)  # type: ignore[misc]
        return {one.member_id: MemberAssignment((WHERE,)) for one in members}


async def test_eager_leader_sends_heartbeats_while_its_assignor_waits() -> None:
    """It has the rebalance timeout to assign, not only its session."""
    async with cluster_and_admin(brokers=1, timeout_s=20) as (cluster, admin):
        await make_topic(admin, 1)
        async with consumer_of(cluster, partition_assignment_strategy=[Deliberate(cluster)]) as consumer:
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=1000)
            assert session_of(consumer).membership.generation == 1


async def test_heartbeat_response_from_before_rebalance_is_ignored() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        async with consumer_of(cluster) as consumer:
            await consumer.getmany(timeout_ms=10)
            session = session_of(consumer)
            before = session._identity()
            session.membership.expire()
            await consumer.getmany(timeout_ms=10)
            assert session._identity() != before
            session._on_response_code(ErrorCode.UNKNOWN_MEMBER_ID, before)
            assert session.membership.state is State.STABLE
            session._on_response_code(ErrorCode.REBALANCE_IN_PROGRESS, session._identity())
            assert session.membership.state is State.UNJOINED


async def test_member_that_waits_for_records_delivers_them_once_its_membership_is_confirmed() -> None:
    async with cluster_and_admin(brokers=1, timeout_s=60) as (cluster, admin):
        await make_topic(admin, 1, enable_ordered_delivery="false")
        async with Producer(cluster.bootstrap_servers) as producer, consumer_of(cluster) as consumer:
            for _ in range(2):
                await producer.send(TOPIC, b"v")
            await producer.flush()
            assert await consumer.getmany(timeout_ms=60_000, max_records=1)
            session_of(consumer).membership.lease.end()
            assert session_of(consumer).unsure
            assert await consumer.getmany(timeout_ms=600_000)


async def test_coordinator_that_fails_between_polls_is_found_again() -> None:
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 1, replicas=3)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer, consumer_of(cluster) as consumer:
            await send(producer, admin, 5)
            assert len((await consumer.getmany(timeout_ms=60_000))[WHERE]) == 5
            coordinator = await consumer._network.coordinator(GROUP)
            await cluster.crash_broker(coordinator)
            await consumer.commit()
            assert await consumer.committed(WHERE) == 5
            assert await consumer._network.coordinator(GROUP) != coordinator


async def test_poll_detects_rebalance_before_next_heartbeat() -> None:
    """A poll waits at the coordinator; heartbeats are a minute apart here."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 3)
        history = History(cluster)
        patient: dict[str, Any] = {
            "heartbeat_interval_ms": 60_000,
            "session_timeout_ms": 120_000,
            "rebalance_timeout_ms": 120_000,
        }
        async with readers(history, 1, **patient) as (first,):
            await history.until(lambda: len(first.owned) == 3)
            async with readers(history, 1, **patient) as (second,):
                await history.until(lambda: first.owned and second.owned)


async def test_returning_static_leader_reads_partitions_of_a_resize_during_its_absence() -> None:
    """It computes no assignment (KIP-814), and the stored one is older than its metadata."""
    async with cluster_and_admin(brokers=1) as (cluster, admin), Producer(cluster.bootstrap_servers) as producer:
        await make_topic(admin, 1)
        async with consumer_of(cluster, group_instance_id="desk") as first:
            while not first.assignment():
                await first.getmany(timeout_ms=20)
            generation = session_of(first).membership.generation
        await resize(admin, 3)
        await send(producer, admin, 30)
        delivered = 0
        async with consumer_of(cluster, group_instance_id="desk") as again:
            while delivered < 30:
                delivered += sum(map(len, (await again.getmany(timeout_ms=100)).values()))
            assert session_of(again).membership.generation > generation
            assert len(again.assignment()) == 3


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_member_that_stops_while_it_joins_leaves_the_group(assignor: str) -> None:
    """Else the others would wait for it: the coordinator cannot know that it is gone."""
    delay = {"group_initial_rebalance_delay_ms": "60000"}
    async with cluster_and_admin(brokers=1, timeout_s=30, **delay) as (cluster, admin):
        await make_topic(admin, 1)
        groups = cluster.nodes[1].services.groups
        consumer = consumer_of(cluster, partition_assignment_strategy=assignor)
        await consumer.start()
        asking = asyncio.create_task(consumer.getone())

        def members() -> list[str]:
            slot = groups.table.slots.get(GROUP)
            return [] if slot is None else list(slot.classic.members.by_id)

        await until(lambda: bool(members()))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await consumer.stop()
        assert members() == []
