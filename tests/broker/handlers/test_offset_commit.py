"""Which partitions may have a committed offset: those that a topic has, and those that it had. Commits of many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from anabranch import Producer, TopicPartition
from anabranch.broker.coordinators.classic_groups.group_events import Leave
from anabranch.broker.dispatch.request_context import RequestContext
from anabranch.broker.handlers.offset_commit import offset_commit
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD
from anabranch.clients import group_admin
from anabranch.protocol.apis.leave_group import LeaveGroupRequest
from anabranch.protocol.apis.offset_commit import OffsetCommitRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from anabranch.protocol.records.batch import iter_batches
from tests.broker.coordinators.world import GroupWorld, commit_errors, commit_request, group_world, join_alone
from tests.broker.replication.replica_cluster import until
from tests.broker.yields import context, while_it_yields, yields_of
from tests.clients.consumer.groups import GROUP, TOPIC, cluster_and_admin, make_topic, resize


@pytest.mark.parametrize("transactional", [False, True])
async def test_offset_of_removed_partition_is_committed(transactional: bool) -> None:
    """Kafka's client commits its position there before it joins again, and repeats a refused commit for minutes."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        await resize(admin, 4)
        await resize(admin, 2)
        await admin.wait_until(lambda metadata: set(metadata.topics[TOPIC].partitions) == {0, 1})
        removed, never = TopicPartition(TOPIC, 3), TopicPartition(TOPIC, 4)

        async def commit(partition: TopicPartition) -> None:
            if not transactional:
                await group_admin.commit_offsets(admin._network, GROUP, {partition: 0})
                return
            producer = Producer(cluster.bootstrap_servers, transactional_id="copier")
            async with producer, producer.transaction():
                await producer.send_offsets_to_transaction({partition: 0}, GROUP)

        await commit(removed)
        with pytest.raises(KafkaError):
            await commit(never)
        assert await group_admin.committed_offsets(admin._network, GROUP) == {removed: 0}


async def test_offsets_of_another_topic_of_the_same_name_are_refused() -> None:
    """They were taken in one that was deleted since."""
    async with group_world() as world:
        ctx = context(world[1].services, 9)
        request = commit_request({0: 5})
        topic_id = ctx.services.metadata.image.topics[request.topics[0].name].topic_id
        for expected, code in (
            (b"x" * 16, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (topic_id, ErrorCode.NONE),
        ):
            request.topics[0].expected_topic_id = expected
            assert commit_errors(await offset_commit(ctx, request)) == [code]


WIDE: Final = 3000
OFFSET_COMMIT: Final = 8


def wide_commit(member: tuple[str, int] = ("", -1), offset: int = 7) -> OffsetCommitRequest:
    return commit_request(dict.fromkeys(range(WIDE), offset), topic="wide", member=member)


@asynccontextmanager
async def wide_world(**settings: Any) -> AsyncIterator[tuple[GroupWorld, RequestContext]]:
    """A coordinator whose topic has thousands of partitions."""
    async with group_world(**settings) as world:
        await world.create_topic(WIDE, "wide")
        yield world, context(world[1].services, 9)


async def test_commit_of_many_partitions_yields_and_is_one_batch() -> None:
    async with wide_world() as (world, ctx):
        response, others = await yields_of(offset_commit(ctx, wide_commit()))
        assert set(commit_errors(response)) == {ErrorCode.NONE} and others >= 3 * WIDE // (ELEMENTS_PER_YIELD + 1)
        assert [row.partition_index for row in response.topics[0].partitions] == list(range(WIDE))
        slot = world.groups(1).table.slots["g"]
        assert [one.offset for one in slot.offsets.committed.values()] == [7] * WIDE
        log = ctx.services.replicas.leader_of(CONSUMER_OFFSETS_TOPIC, 0).log
        (batch,) = iter_batches(bytes(log.read(0, 1 << 20, limit_offset=log.log_end_offset)))
        assert batch[1].record_count == WIDE
        _, others = await yields_of(offset_commit(ctx, commit_request({0: 1, 1: 1})))
        assert others == 0, "a short commit is answered at once"


async def test_member_that_leaves_while_its_commit_yields_is_fenced() -> None:
    async with wide_world() as (world, ctx):
        connection = await world[1].connect()
        member_id, generation = await join_alone(connection)
        group = world.groups(1).table.slots["g"].classic

        def leave() -> None:
            world.groups(1).apply(
                world.groups(1).table.slots["g"],
                Leave(ticket=asyncio.Future(), request=LeaveGroupRequest(group_id="g", member_id=member_id), version=0),
            )
            assert member_id not in group.members.by_id

        response = await while_it_yields(offset_commit(ctx, wide_commit((member_id, generation))), leave)
        assert set(commit_errors(response)) == {ErrorCode.UNKNOWN_MEMBER_ID}
        assert not world.groups(1).offsets.of("g").committed
        await connection.close()


async def test_coordinator_that_resigns_while_a_commit_yields_refuses_it() -> None:
    async with wide_world() as (world, ctx):
        response = await while_it_yields(offset_commit(ctx, wide_commit()), world.groups(1).step_down)
        assert set(commit_errors(response)) == {ErrorCode.NOT_COORDINATOR}


async def test_topic_that_is_deleted_while_a_commit_yields_is_unknown() -> None:
    async with wide_world() as (world, ctx):
        request = wide_commit()
        request.topics += commit_request({0: 5}).topics
        response = await while_it_yields(
            offset_commit(ctx, request), lambda: world.delete_topic("wide", partitions=WIDE)
        )
        assert commit_errors(response) == [*[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * WIDE, ErrorCode.NONE]
        assert list(world.groups(1).offsets.of("g").committed) == [("t", 0)]


async def test_commit_of_a_lost_connection_does_not_undo_the_next_commit_of_its_client() -> None:
    """The client connects again and commits less or more, while its earlier commit is still encoded."""
    async with wide_world() as (world, _):
        lost, other = await world[1].connect(), await world[1].connect()
        started = world[1].server.dispatcher.requests
        sent = started[OFFSET_COMMIT]
        committing = asyncio.ensure_future(lost.call(wide_commit(offset=7), version=9))
        await until(lambda: started[OFFSET_COMMIT] > sent)
        await lost.close()
        with pytest.raises(ConnectionError):
            await committing
        assert commit_errors(await other.call(commit_request({5: 9}, topic="wide"))) == [ErrorCode.NONE]
        offsets = world.groups(1).offsets.of("g")
        await until(lambda: len(world[1].server.connections) == 1)
        assert {one: value.offset for one, value in offsets.committed.items()} == {("wide", 5): 9}
        await other.close()
