"""Consumers with `group_protocol="consumer"` on clusters with and without KIP-848 groups."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from anabranch import Admin, Cluster, Consumer, Producer, TopicPartition
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.clients.consumer.classic_group_session import RETRY_BACKOFF_S
from anabranch.clients.consumer.consumer_group_membership import JOINING, STATIC_LEAVE, ConsumerGroupMembership
from anabranch.clients.topic_admin import NewTopic
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.replication.replica_cluster import until

PROPERTIES = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


@contextlib.asynccontextmanager
async def cluster(kafka: str = "4.1", brokers: int = 1, **configs: str) -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers, kafka=kafka, properties=PROPERTIES) as running:
        async with Admin(running.bootstrap_servers) as admin:
            settings = {name.replace("_", "."): value for name, value in configs.items()}
            await admin.create_topics([NewTopic(name="t", partitions=4, configs=settings)])
        yield running


def consumer(running: Cluster, **more: Any) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap_servers": running.bootstrap_servers,
        "group_id": "g",
        "group_protocol": "consumer",
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 100,
        "heartbeat_interval_ms": 200,
    }
    return Consumer("t", **(settings | more))


async def send(running: Cluster, count: int, first: int = 0) -> None:
    async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
        for number in range(first, first + count):
            await producer.send("t", str(number).encode(), str(number % 11).encode())


class Readers:
    """Consumers that poll, and what they were handed."""

    def __init__(self) -> None:
        self.values: list[tuple[int, int]] = []
        self._tasks: dict[Consumer, asyncio.Task[None]] = {}

    async def start(self, one: Consumer) -> Consumer:
        await one.start()
        self.follow(one)
        return one

    def follow(self, one: Consumer) -> None:
        self._tasks[one] = asyncio.create_task(self._read(one))

    async def _read(self, one: Consumer) -> None:
        while True:
            for records in (await one.getmany(timeout_ms=100)).values():
                self.values += [(int(record.key or b""), int(record.value or b"")) for record in records]

    async def stop(self, one: Consumer) -> None:
        task = self._tasks.pop(one)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await one.stop()

    async def close(self) -> None:
        for one in list(self._tasks):
            await self.stop(one)


@contextlib.asynccontextmanager
async def readers() -> AsyncIterator[Readers]:
    made = Readers()
    try:
        yield made
    finally:
        await made.close()


def share(*consumers: Consumer) -> bool:
    owned = [one for each in consumers for one in each.assignment()]
    return sorted(owned) == [TopicPartition("t", index) for index in range(4)] and all(
        len(each.assignment()) == 4 // len(consumers) for each in consumers
    )


async def test_members_share_partitions_and_leave() -> None:
    async with cluster() as running, readers() as reading:
        a = await reading.start(consumer(running))
        await until(lambda: share(a))
        await send(running, 100)
        b = await reading.start(consumer(running))
        await until(lambda: share(a, b))
        await send(running, 100, 100)
        await until(lambda: len(reading.values) == 200)
        await reading.stop(a)
        await until(lambda: share(b))
        await send(running, 100, 200)
        await until(lambda: len(reading.values) == 300)
        assert sorted(value for _, value in reading.values) == list(range(300))


async def test_keys_keep_order_across_split_and_merge() -> None:
    async with cluster() as running, readers() as reading, Admin(running.bootstrap_servers) as admin:
        await reading.start(consumer(running))
        await reading.start(consumer(running))
        for number, count in enumerate((7, 3)):
            await send(running, 200, number * 200)
            await admin.create_partitions("t", count, allow_shrink=True)
        await send(running, 200, 400)
        await until(lambda: len(reading.values) >= 600)
        last: dict[int, int] = {}
        for key, value in reading.values:
            assert value > last.get(key, -1), f"{key}: {value} after {last[key]}"
            last[key] = value


async def test_members_continue_at_new_coordinator() -> None:
    async with cluster(brokers=3) as running, readers() as reading:
        a, b = await reading.start(consumer(running)), await reading.start(consumer(running))
        await until(lambda: share(a, b))
        (at,) = [node_id for node_id, node in running.nodes.items() if node.services.groups.groups()]
        await running.crash_broker(at)
        await send(running, 50)
        await until(lambda: len(reading.values) == 50)
        await until(lambda: share(a, b))


async def test_fenced_member_rejoins() -> None:
    async with cluster() as running, readers() as reading:
        a = await reading.start(consumer(running))
        await until(lambda: share(a))
        group = running.nodes[1].services.groups.group("g")
        assert isinstance(group, ConsumerGroup)
        (member_id,) = group.members
        membership = a._core.membership
        assert isinstance(membership, ConsumerGroupMembership)
        membership.at_epoch(99)  # as if it had heard from a coordinator that is ahead
        await until(lambda: member_id not in group.members and len(group.members) == 1)
        await until(lambda: share(a))
        await send(running, 20)
        await until(lambda: len(reading.values) >= 20)


async def test_members_that_wait_for_records_take_up_their_assignments() -> None:
    async with cluster(enable_ordered_delivery="false") as running, consumer(running) as a, consumer(running) as b:
        waiting = [asyncio.create_task(a.getmany(timeout_ms=600_000))]
        await until(lambda: share(a))
        waiting.append(asyncio.create_task(b.getmany(timeout_ms=600_000)))
        await until(lambda: share(a, b))
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_member_that_waits_for_records_delivers_them_once_its_membership_is_confirmed() -> None:
    async with cluster(enable_ordered_delivery="false") as running, consumer(running) as a:
        async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            await producer.send("t", b"1", partition=0)
            await producer.send("t", b"2", partition=0)
        assert await a.getmany(timeout_ms=60_000, max_records=1)
        assert a._session is not None
        a._session.membership.lease.end()
        assert a._session.unsure
        assert await a.getmany(timeout_ms=600_000)


def lose_next_assignment(one: Consumer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lose the response to the next heartbeat that has an assignment; return what was lost."""
    call, lost = one._network.call, list[str]()

    async def losing(node_id: int, request: Any, **more: Any) -> Any:
        response = await call(node_id, request, **more)
        beats = isinstance(request, ConsumerGroupHeartbeatRequest) and request.topic_partitions is None
        if beats and response.assignment is not None and not lost:
            lost.append(str(response.assignment))
            raise ConnectionResetError("the connection is lost")
        return response

    monkeypatch.setattr(one._network, "call", losing)
    return lost


@pytest.mark.parametrize("loses", ["what it may read", "what it has to revoke"])
async def test_member_is_assigned_what_a_lost_response_had(loses: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator sends a changed assignment once, and the member epoch stays the same."""
    async with cluster(enable_ordered_delivery="false") as running, readers() as reading:
        a = await reading.start(consumer(running))
        await until(lambda: share(a))
        b = consumer(running)
        if loses == "what it has to revoke":
            lost = lose_next_assignment(a, monkeypatch)
            await reading.start(b)
        else:
            await reading.start(b)
            lost = lose_next_assignment(b, monkeypatch)
        await until(lambda: share(a, b))
        assert lost


@pytest.mark.parametrize("lost", ["the response to its join", "its leave request"])
async def test_static_member_is_not_refused_for_its_own_instance_id(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as running, readers() as reading:
        a = consumer(running, group_instance_id="i", rebalance_timeout_ms=500)
        await a.start()
        call, epochs = a._network.call, list[int]()

        async def losing(node_id: int, request: Any, **more: Any) -> Any:
            if not isinstance(request, ConsumerGroupHeartbeatRequest):
                return await call(node_id, request, **more)
            epochs.append(request.member_epoch)
            if lost == "its leave request" and request.member_epoch == STATIC_LEAVE and epochs.count(JOINING) == 1:
                raise TimeoutError("no response")
            response = await call(node_id, request, **more)
            if lost == "the response to its join" and len(epochs) == 1:
                raise ConnectionResetError("the connection is lost")
            return response

        monkeypatch.setattr(a._network, "call", losing)
        if lost == "its leave request":
            while not a.assignment():
                await a.getmany(timeout_ms=100)
            await until(lambda: STATIC_LEAVE in epochs)  # nobody asks for records
        reading.follow(a)
        await until(lambda: epochs.count(JOINING) > 2)
        await until(lambda: share(a))


async def test_member_pauses_while_metadata_lacks_an_assigned_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has just started does not know the topic; the coordinator does."""
    async with cluster() as running, consumer(running) as a:
        membership, joins = a._core.membership, list[object]()
        assert a._session is not None and isinstance(membership, ConsumerGroupMembership)
        full_request = membership.full_request

        def counted(ids: Mapping[str, bytes]) -> ConsumerGroupHeartbeatRequest:
            joins.append(ids)
            return full_request(ids)

        monkeypatch.setattr(membership, "full_request", counted)
        monkeypatch.setattr(a._session, "_ids", dict)
        while not joins:
            await a.getmany(timeout_ms=100)
        await a.getmany(timeout_ms=1000)
        assert len(joins) <= 2 + 1.5 / RETRY_BACKOFF_S, "one after the other without a pause are hundreds"
        monkeypatch.undo()
        while not share(a):
            await a.getmany(timeout_ms=100)


async def test_commit_that_is_repeated_in_a_later_epoch_leaves_out_partitions_that_others_have_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The application commits in a task of its own, while another one asks for records and revokes partitions."""
    async with cluster() as running, readers() as reading:
        a, b = consumer(running, enable_auto_commit=False), consumer(running)
        await reading.start(a)
        await until(lambda: share(a))
        await send(running, 100)
        await until(lambda: len(reading.values) == 100)
        session, attempts = a._session, list[OffsetCommitRequest]()
        assert session is not None
        call = session._call

        async def stale_at_first(request: Any, error_of: Callable[[Any], int], **more: Any) -> Any:
            if isinstance(request, OffsetCommitRequest):
                attempts.append(request)
                if len(attempts) == 1:
                    await reading.start(b)
                    await until(lambda: share(a, b))
                    return refusal(request, ErrorCode.STALE_MEMBER_EPOCH)
            return await call(request, error_of, **more)

        monkeypatch.setattr(session, "_call", stale_at_first)
        with pytest.raises(KafkaError) as refused:
            await a.commit({TopicPartition("t", index): 1 for index in range(4)})
        assert (refused.value.code, len(attempts)) == (ErrorCode.ILLEGAL_GENERATION, 1)


def refusal(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def test_member_that_stops_before_its_join_is_answered_leaves_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator has it: its partitions would have no reader until its session is over."""
    async with cluster() as running:
        one = consumer(running)
        await one.start()
        call, taken = one._network.call, asyncio.Event()

        async def lost(node_id: int, request: Any, **more: Any) -> Any:
            response = await call(node_id, request, **more)
            if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch == JOINING:
                taken.set()
                await asyncio.Event().wait()
            return response

        monkeypatch.setattr(one._network, "call", lost)
        asking = asyncio.create_task(one.getone())
        await taken.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await one.stop()
        group = running.nodes[1].services.groups.group("g")
        assert isinstance(group, ConsumerGroup) and not group.members


async def test_restarted_static_member_keeps_its_assignment() -> None:
    async with cluster() as running, readers() as reading:
        a = await reading.start(consumer(running, group_instance_id="i"))
        b = await reading.start(consumer(running))
        await until(lambda: share(a, b))
        had, group = a.assignment(), running.nodes[1].services.groups.group("g")
        assert isinstance(group, ConsumerGroup)
        epoch = group.epoch
        with pytest.raises(KafkaError) as refused:
            async with consumer(running, group_instance_id="i") as other:
                await other.getmany(timeout_ms=5000)
        assert refused.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
        await reading.stop(a)
        again = await reading.start(consumer(running, group_instance_id="i"))
        await until(lambda: again.assignment() == had)
        assert group.epoch == epoch


async def test_cluster_without_consumer_groups_uses_classic_protocol() -> None:
    async with cluster("3.9") as running, readers() as reading:
        a, b = await reading.start(consumer(running)), await reading.start(consumer(running))
        await until(lambda: share(a, b))
        await send(running, 50)
        await until(lambda: len(reading.values) == 50)
        group = running.nodes[1].services.groups.group("g")
        assert group is not None and not isinstance(group, ConsumerGroup)


async def test_members_of_both_protocols_share_partitions() -> None:
    async with cluster() as running, readers() as reading:
        a = await reading.start(consumer(running, group_protocol="classic"))
        await until(lambda: share(a))
        b = await reading.start(consumer(running))
        await until(lambda: share(a, b))
        await send(running, 100)
        await until(lambda: len(reading.values) == 100)
        await reading.stop(b)
        await until(lambda: share(a))
        group = running.nodes[1].services.groups.group("g")
        assert group is not None and not isinstance(group, ConsumerGroup)


def test_unknown_group_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match="classic, consumer"):
        Consumer("t", group_id="g", group_protocol="modern")
