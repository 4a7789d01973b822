"""Offsets in transactions: when they count, who may commit them, and failover."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset
from anabranch.broker.handlers.txn_offset_commit import txn_offset_commit
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD
from anabranch.clients.connection import Connection
from anabranch.protocol.apis.delete_groups import DeleteGroupsRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from tests.broker.coordinators.world import (
    GroupWorld,
    commit_request,
    fetch_offsets_request,
    group_world,
    join_alone,
    offsets_in,
    positions_in,
    watch_request,
)
from tests.broker.replication.replica_cluster import until
from tests.broker.transactions import (
    ScriptedCoordinator,
    codes_of,
    coordinate_transactions,
    end,
    marker,
    txn_commit_request,
)
from tests.broker.yields import context, refused_after_loss, while_it_yields, yields_of

OFFSETS = (CONSUMER_OFFSETS_TOPIC, 0)
OK = [ErrorCode.NONE]


async def begin_transaction(world: GroupWorld) -> tuple[Connection, ScriptedCoordinator]:
    """A transaction that the group's partition is part of."""
    return await world[1].connect(), await coordinate_transactions(world, 1, [OFFSETS])


async def fetched(connection: Connection, *, stable: bool = False) -> tuple[int, ErrorCode]:
    response = await connection.call(fetch_offsets_request(8, [0], stable=stable))
    (row,) = response.groups[0].topics[0].partitions
    return row.committed_offset, ErrorCode(row.error_code)


@pytest.mark.parametrize("version", range(5))
async def test_offsets_are_visible_once_the_transaction_is_committed(version: int) -> None:
    async with group_world() as world:
        connection, coordinator = await begin_transaction(world)
        assert codes_of(await connection.call(commit_request({0: 10}))) == OK
        said = await connection.call(txn_commit_request({0: 20}), version=version)
        assert codes_of(said) == OK
        assert coordinator.questions == [("tx", 0, [OFFSETS])]
        assert await fetched(connection) == (10, ErrorCode.NONE)
        assert await fetched(connection, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert codes_of(await connection.call(txn_commit_request({0: 30}), version=version)) == OK
        await end(world, marker(True, OFFSETS))
        assert await fetched(connection, stable=True) == (30, ErrorCode.NONE)
        assert codes_of(await connection.call(txn_commit_request({0: 40}), version=version)) == OK
        await end(world, marker(False, OFFSETS))
        assert await fetched(connection, stable=True) == (30, ErrorCode.NONE), "aborted"
        assert len(coordinator.asked) == 2, "once per transaction"


async def test_later_plain_commit_overrides_an_earlier_transactional_commit() -> None:
    async with group_world() as world:
        connection, _ = await begin_transaction(world)
        await connection.call(txn_commit_request({0: 20}))
        await connection.call(commit_request({0: 25}))
        await end(world, marker(True, OFFSETS))
        assert await fetched(connection) == (25, ErrorCode.NONE)


@pytest.mark.parametrize("commit", [True, False])
async def test_pending_transactional_offsets_survive_a_failover(commit: bool) -> None:
    async with group_world(brokers=2) as world:
        connection, _ = await begin_transaction(world)
        await connection.call(commit_request({0: 10}))
        await connection.call(txn_commit_request({0: 20, 1: 21}))
        await world.coordinate(2)
        other = await world[2].connect()
        assert await fetched(other, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        await end(world, marker(commit, OFFSETS), broker_id=2)
        expected = {0: 20, 1: 21} if commit else {0: 10}
        for broker_id in (2, 1):
            await world.coordinate(broker_id)
            said = await (await world[broker_id].connect()).call(fetch_offsets_request(8, None))
            assert offsets_in(said, 8) == expected, "live, and read from the log"


async def test_watch_completes_at_the_commit_marker() -> None:
    """K603: a staged boundary may never be committed, so gates stay closed."""
    async with group_world() as world:
        connection, _ = await begin_transaction(world)
        await connection.call(commit_request({0: 10}))
        watching = asyncio.create_task((await world[1].connect()).call(watch_request({0: 20})))
        slot = world.groups(1).table.slots["g"]
        await until(lambda: len(slot.positions.watches) == 1)
        await connection.call(txn_commit_request({0: 20}))
        await end(world, marker(False, OFFSETS))
        assert not watching.done()
        await connection.call(txn_commit_request({0: 20}))
        assert not watching.done()
        await end(world, marker(True, OFFSETS))
        assert positions_in(await watching) == {0: 20}


async def test_members_are_fenced_from_v3_on() -> None:
    async with group_world() as world:
        connection, _ = await begin_transaction(world)
        member_id, generation = await join_alone(connection)

        async def said(version: int = 4, **who: Any) -> ErrorCode:
            return codes_of(await connection.call(txn_commit_request({0: 20}, **who), version=version))[0]

        assert await said(member=(member_id, generation)) is ErrorCode.NONE
        assert await said(member=(member_id, generation - 1)) is ErrorCode.ILLEGAL_GENERATION
        assert await said(member=("who", generation)) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await said(member=("", generation)) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await said(member=(member_id, generation), instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
        assert await said(group="", member=(member_id, generation)) is ErrorCode.INVALID_GROUP_ID
        assert await said(group="unheard of", member=("who", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
        assert "unheard of" not in world.groups(1).table.slots
        assert await said(version=2) is ErrorCode.NONE, "older producers cannot say for whom they commit"
        assert await said() is ErrorCode.NONE, "and newer ones need not"


async def test_replaced_static_member_is_fenced() -> None:
    async with group_world() as world:
        from tests.broker.coordinators.world import join_request, sync_request

        connection, _ = await begin_transaction(world)
        joined = await connection.call(join_request(instance_id="i"))
        await connection.call(sync_request(joined.member_id, joined.generation_id, {joined.member_id: b"mine"}))
        request = txn_commit_request({0: 1}, member=("older life", joined.generation_id), instance_id="i")
        assert codes_of(await connection.call(request)) == [ErrorCode.FENCED_INSTANCE_ID]


async def test_errors_of_transaction_coordinator_and_log_are_returned() -> None:
    async with group_world() as world:
        connection, coordinator = await begin_transaction(world)

        async def said(version: int = 4, **more: Any) -> ErrorCode:
            return codes_of(await connection.call(txn_commit_request({0: 20}, **more), version=version))[0]

        coordinator.ongoing.clear()
        assert await said() is ErrorCode.TRANSACTION_ABORTABLE
        assert await said(3) is ErrorCode.INVALID_TXN_STATE
        coordinator.trouble = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await said() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await said(1) is ErrorCode.COORDINATOR_NOT_AVAILABLE, "the oldest clients would crash"
        coordinator.trouble = ErrorCode.PRODUCER_FENCED
        assert await said() is ErrorCode.INVALID_PRODUCER_EPOCH
        coordinator.trouble = ErrorCode.NONE
        coordinator.ongoing["tx"] = {OFFSETS}
        await end(world, marker(False, OFFSETS, producer=(7, 3)))
        assert await said() is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await said(producer=(7, 3)) is ErrorCode.NONE


async def test_unreachable_transaction_coordinator_fails_the_commit() -> None:
    async with group_world(brokers=2) as world:
        await coordinate_transactions(world, 2, [OFFSETS])
        await world.kill(2)
        connection = await world[1].connect()
        said = codes_of(await connection.call(txn_commit_request({0: 20})))
        assert said == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


async def test_partition_errors_are_individual_and_group_errors_apply_to_all() -> None:
    async with group_world() as world:
        connection, coordinator = await begin_transaction(world)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes_of(await connection.call(txn_commit_request({0: 1, 9: 1}))) == [unknown, ErrorCode.NONE]
        assert codes_of(await connection.call(txn_commit_request({0: 1}, topic="no"))) == [unknown]
        request_count = len(coordinator.asked)
        long = "x" * 4097
        too_large = [unknown, ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert codes_of(await connection.call(txn_commit_request({0: 1, 9: 1}, metadata=long))) == too_large
        wide = "\N{GRINNING FACE}" * 2049  # Java counts it as two
        assert codes_of(await connection.call(txn_commit_request({0: 1, 9: 1}, metadata=wide))) == too_large
        assert len(coordinator.asked) == request_count
        refused = txn_commit_request({0: 1, 9: 1}, metadata=long, member=("who", 1))
        assert codes_of(await connection.call(refused)) == [unknown, ErrorCode.UNKNOWN_MEMBER_ID]


async def test_commit_to_wrong_coordinator_is_refused() -> None:
    async with group_world(brokers=2) as world:
        await begin_transaction(world)
        await world.coordinate(2)
        said = await (await world[1].connect()).call(txn_commit_request({0: 1}))
        assert codes_of(said) == [ErrorCode.NOT_COORDINATOR]


async def test_a_deleted_group_stays_deleted_when_its_transaction_is_committed() -> None:
    async with group_world(brokers=2) as world:
        connection, _ = await begin_transaction(world)
        await connection.call(txn_commit_request({0: 20}))
        deleted = await connection.call(DeleteGroupsRequest(groups_names=["g"]))
        assert [row.error_code for row in deleted.results] == [0]
        await end(world, marker(True, OFFSETS))
        for broker_id in (1, 2):
            await world.coordinate(broker_id)
            assert await fetched(await world[broker_id].connect()) == (-1, ErrorCode.NONE), (
                "live, and read from the log"
            )


async def test_commit_not_replicated_in_time_stays_pending() -> None:
    """The client gets an error and aborts; the record is in the log, and a replay stages it."""
    async with group_world(brokers=2, offsets_commit_timeout_ms=100) as world:
        connection, _ = await begin_transaction(world)
        await world.kill(2)
        assert codes_of(await connection.call(txn_commit_request({0: 20}))) == [ErrorCode.REQUEST_TIMED_OUT]
        assert await fetched(connection, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        await world.coordinate(1, isr=(1,))
        await end(world, marker(False, OFFSETS))
        assert await fetched(connection, stable=True) == (-1, ErrorCode.NONE)


async def test_marker_arriving_during_a_load_is_applied() -> None:
    """The staged offset is on brokers 1 and 2, its marker arrives at 2, and then broker 3 catches up."""
    async with group_world(brokers=3) as world:
        connection, _ = await begin_transaction(world)
        world[3].replicas.fetchers.forget(world.partition(3, CONSUMER_OFFSETS_TOPIC))
        staging = asyncio.ensure_future(connection.call(txn_commit_request({0: 20})))
        await until(lambda: world.partition(2, CONSUMER_OFFSETS_TOPIC).log.log_end_offset == 1)
        await world.lead(2, isr=(2, 3), topic=CONSUMER_OFFSETS_TOPIC, only=[1, 2])
        await staging
        groups = world.groups(2)
        await until(lambda: groups.loading)
        ending = asyncio.ensure_future(end(world, marker(True, OFFSETS), broker_id=2))
        await until(lambda: world.partition(2, CONSUMER_OFFSETS_TOPIC).log.log_end_offset == 2)
        assert groups.loading
        await world.tell(CONSUMER_OFFSETS_TOPIC, 0, [3])
        await ending
        await until(lambda: not groups.loading)
        assert await fetched(await world[2].connect(), stable=True) == (20, ErrorCode.NONE)


async def test_late_marker_does_not_settle_the_next_transaction() -> None:
    """One request of a former coordinator also has a partition that is replicated late; its successor writes again."""
    async with group_world() as world:
        connection, _ = await begin_transaction(world)
        await world.lead(1, replicas=(1, 9), topic="slow")
        await connection.call(txn_commit_request({0: 20}))
        late = asyncio.create_task(end(world, marker(True, OFFSETS, ("slow", 0))))
        journal = world.partition(1, CONSUMER_OFFSETS_TOPIC)
        await until(lambda: journal.high_watermark == 2)
        await end(world, marker(True, OFFSETS, coordinator_epoch=2))
        assert await fetched(connection, stable=True) == (20, ErrorCode.NONE)
        await connection.call(txn_commit_request({0: 30}))
        await world.lead(1, replicas=(1, 9), isr=(1,), topic="slow")
        assert set((await late).values()) == {ErrorCode.NONE}
        assert await fetched(connection) == (20, ErrorCode.NONE), "the next transaction is open"
        assert await fetched(connection, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        await end(world, marker(False, OFFSETS, coordinator_epoch=2))
        assert await fetched(connection, stable=True) == (20, ErrorCode.NONE)


async def test_a_plain_commit_is_unstable_until_it_is_replicated() -> None:
    async with group_world(brokers=2) as world:
        connection, other = await world[1].connect(), await world[1].connect()
        await connection.call(commit_request({0: 10}))
        await world.kill(2)
        committing = asyncio.create_task(connection.call(commit_request({0: 20})))
        offsets = world.groups(1).table.slots["g"].offsets
        await until(lambda: offsets.unstable(("t", 0)))
        assert await fetched(other) == (10, ErrorCode.NONE)
        assert await fetched(other, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        await world.coordinate(1, isr=(1,))
        await committing
        assert await fetched(other, stable=True) == (20, ErrorCode.NONE)


async def test_offsets_of_an_open_transaction_do_not_expire() -> None:
    async with group_world(offsets_retention_minutes=1) as world:
        connection, _ = await begin_transaction(world)
        await connection.call(commit_request({0: 10, 1: 11}))
        await connection.call(txn_commit_request({0: 20}))
        world.late_ms += 61_000
        await world.groups(1).offsets.expire()
        slot = world.groups(1).table.slots["g"]
        assert list(slot.offsets.committed) == [("t", 0)]
        value: CommittedOffset = slot.offsets.staged[7]["t", 0]
        assert value.offset == 20
        await end(world, marker(True, OFFSETS))
        assert await fetched(connection) == (20, ErrorCode.NONE)


async def test_commit_of_many_partitions_yields_and_is_staged_at_once() -> None:
    async with group_world() as world:
        await world.create_topic(3000)
        _, coordinator = await begin_transaction(world)
        request = txn_commit_request(dict.fromkeys(range(3000), 5))
        response, others = await yields_of(txn_offset_commit(context(world[1].services, 4), request))
        assert codes_of(response) == OK * 3000 and coordinator.questions == [("tx", 0, [OFFSETS])]
        assert others >= 2 * 3000 // (ELEMENTS_PER_YIELD + 1)
        (staged,) = world.groups(1).offsets.of("g").staged.values()
        places = [one.journal_offset for one in staged.values()]
        assert len(places) == 3000 and places == list(range(places[0], places[0] + 3000)), "they are one batch"
        await end(world, marker(True, OFFSETS))
        committed = world.groups(1).offsets.of("g").committed
        assert [one.offset for one in committed.values()] == [5] * 3000


async def test_coordinator_that_resigns_while_a_transactional_commit_yields_refuses_it() -> None:
    async with group_world() as world:
        await world.create_topic(3000)
        await begin_transaction(world)
        request = txn_commit_request(dict.fromkeys(range(3000), 5))
        working = txn_offset_commit(context(world[1].services, 4), request)
        assert set(codes_of(await while_it_yields(working, world.groups(1).step_down))) == {ErrorCode.NOT_COORDINATOR}


async def test_transactional_commit_of_a_lost_connection_is_not_staged() -> None:
    """Its client may have repeated it, ended the transaction, and committed later offsets in the next one."""
    async with group_world() as world:
        await world.create_topic(3000)
        await begin_transaction(world)
        request = txn_commit_request(dict.fromkeys(range(3000), 5))
        await refused_after_loss(lambda peer: txn_offset_commit(context(world[1].services, 4, peer), request))
        assert not world.groups(1).offsets.of("g").staged


@pytest.mark.parametrize("verifies", [False, True])
async def test_topic_that_is_deleted_during_a_transactional_commit_is_unknown(verifies: bool) -> None:
    """Its staged offset would take effect with the transaction, and a new topic of the name be read from there.

    While many offsets are encoded, or while the transaction is verified.
    """
    async with group_world() as world:
        await world.create_topic(3000, "doomed")
        _, coordinator = await begin_transaction(world)
        request = txn_commit_request({0: 5})
        request.topics += txn_commit_request(dict.fromkeys(range(1 if verifies else 3000), 5), topic="doomed").topics
        ctx = context(world[1].services, 4)
        if verifies:
            coordinator.hold = asyncio.Event()
            working = asyncio.ensure_future(txn_offset_commit(ctx, request))
            await until(lambda: len(coordinator.asked) == 1)
            world.delete_topic("doomed", partitions=3000)
            coordinator.hold.set()
            response = await working
        else:
            response = await while_it_yields(
                txn_offset_commit(ctx, request), lambda: world.delete_topic("doomed", partitions=3000)
            )
        assert {row.name: {one.error_code for one in row.partitions} for row in response.topics} == {
            "t": {ErrorCode.NONE},
            "doomed": {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        }
        (staged,) = world.groups(1).offsets.of("g").staged.values()
        assert list(staged) == [("t", 0)]
