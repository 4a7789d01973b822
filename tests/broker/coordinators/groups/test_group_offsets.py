"""Committed offsets: deletion on request, expiry by Kafka's rules, compaction, reload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from anabranch.broker.coordinators.classic_groups.group_state import EMPTY, PREPARING
from anabranch.broker.coordinators.groups.group_offsets import utf16_length
from anabranch.broker.coordinators.groups.group_shards import GroupEntry
from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset
from anabranch.broker.handlers.join_group import join_group
from anabranch.broker.handlers.offset_commit import offset_commit
from anabranch.broker.handlers.offset_delete import offset_delete
from anabranch.broker.storage.cleaner import Cleaning, cleanable_part
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD
from anabranch.clients.connection import Connection
from anabranch.protocol.apis.join_group import JoinGroupRequestProtocol
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from anabranch.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from anabranch.protocol.records.batch import iter_batches
from tests.broker.coordinators.world import (
    TOPIC,
    GroupWorld,
    commit_errors,
    commit_request,
    group_world,
    join_request,
    sync_request,
)
from tests.broker.replication.replica_cluster import until
from tests.broker.yields import context, refused_after_loss, while_it_yields, yields_of

MINUTE_MS = 60_000


def delete_request(*indexes: int, topic: str = TOPIC, group: str = "g") -> OffsetDeleteRequest:
    rows = [OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    return OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=rows)])


async def consume(connection: Connection, *topics: str, protocol_type: str = "consumer") -> tuple[str, int]:
    """A group of one member that is subscribed to these topics."""
    request = join_request(session_ms=1_800_000)
    request.protocol_type = protocol_type
    metadata = encode_subscription(ConsumerProtocolSubscription(topics=list(topics), user_data=None))
    request.protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    response = await connection.call(request, version=3)
    assert response.error_code == 0
    await connection.call(sync_request(response.member_id, response.generation_id), version=4)
    return response.member_id, response.generation_id


def errors_in(response: object) -> dict[int, ErrorCode]:
    return {row.partition_index: ErrorCode(row.error_code) for topic in response.topics for row in topic.partitions}  # type: ignore[attr-defined]


def committed(world: GroupWorld, group: str = "g", broker_id: int = 1) -> set[tuple[str, int]]:
    return set(world.groups(broker_id).offsets.of(group).committed)


# --- deleted on request ------------------------------------------------------------------------------------------


async def test_offsets_of_an_empty_group_are_deleted() -> None:
    async with group_world(brokers=2) as world:
        connection = await world[1].connect()
        await connection.call(commit_request({0: 1, 1: 1}))
        response = await connection.call(delete_request(0, 2, 99))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert response.error_code == 0 and errors_in(response) == {0: ErrorCode.NONE, 2: ErrorCode.NONE, 99: unknown}
        assert committed(world) == {(TOPIC, 1)}
        await world.coordinate(2)
        assert committed(world, broker_id=2) == {(TOPIC, 1)}, "the tombstone was replicated"
        await connection.close()


@pytest.mark.parametrize("reason", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS])
async def test_deletion_that_is_not_replicated_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, reason: ErrorCode
) -> None:
    """Kafka 4 answers COORDINATOR_NOT_AVAILABLE; OffsetDelete has no REBALANCE_IN_PROGRESS."""

    async def refuse(*_: object, **__: object) -> int:
        raise KafkaError(reason)

    async with group_world(brokers=2) as world:
        connection = await world[1].connect()
        await connection.call(commit_request({0: 1}))
        monkeypatch.setattr(world.groups(1).journal, "_write", refuse)
        assert (await connection.call(delete_request(0))).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(world) == {(TOPIC, 0)}


async def test_offsets_are_not_deleted_before_it_is_known_what_a_new_group_reads() -> None:
    """Its first join phase lasts for the initial delay: as in Kafka, every topic counts as subscribed meanwhile."""
    async with group_world(group_initial_rebalance_delay_ms=60_000) as world:
        connection, other = await world[1].connect(), await world[1].connect()
        await connection.call(commit_request({0: 1}))
        joining = asyncio.ensure_future(other.call(join_request(), version=3))
        await until(lambda: world.groups(1).table.slots["g"].group.state is PREPARING)
        response = await connection.call(delete_request(0))
        assert response.error_code == 0 and errors_in(response) == {0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
        assert committed(world) == {(TOPIC, 0)}
        await other.close()
        with pytest.raises(ConnectionError):
            await joining
        await connection.close()


def listed(world: GroupWorld, broker_id: int = 1) -> set[str]:
    return {group.group_id for group in world.groups(broker_id).groups()}


async def leave_three_groups(world: GroupWorld, connection: Connection, topic: str) -> None:
    """One of offsets alone, one whose member has left, and one that has a member; all have read one topic."""
    await world.create_topic(1, topic)
    member = await consume(connection, topic)
    await connection.call(commit_request({0: 1}, topic=topic, member=member))
    await connection.call(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member[0])]))
    await connection.call(commit_request({0: 1}, topic=topic, group="alone"))
    request = join_request(session_ms=1_800_000)
    request.group_id = "living"
    assert (await connection.call(request, version=3)).error_code == 0
    assert listed(world) == {"g", "alone", "living"}


async def test_empty_group_is_deleted_with_its_last_topic() -> None:
    async with group_world(brokers=2) as world:
        connection = await world[1].connect()
        await leave_three_groups(world, connection, "doomed")
        await connection.call(commit_request({0: 1}, group="more"))
        await connection.call(commit_request({0: 1}, topic="doomed", group="more"))
        world.delete_topic("doomed")
        await until(lambda: listed(world) == {"living", "more"})
        await world.coordinate(2)
        assert listed(world, 2) == {"more"}, "the tombstones were replicated; the member never got an assignment"
        await connection.close()


async def test_group_without_offsets_is_deleted_at_the_next_retention_check_of_kafka_4() -> None:
    async with group_world(kafka_version="4.1") as world:
        connection = await world[1].connect()
        await leave_three_groups(world, connection, "doomed")
        world.delete_topic("doomed")
        await until(lambda: not committed(world) and not committed(world, "alone"))
        assert listed(world) == {"g", "alone", "living"}
        await world.groups(1).offsets.expire()
        assert listed(world) == {"living"}
        await connection.close()


@pytest.mark.parametrize(("kafka_version", "stays"), [("3.9", False), ("4.1", True)])
async def test_group_stays_in_kafka_4_after_deletion_of_its_last_offset(kafka_version: str, stays: bool) -> None:
    async with group_world(kafka_version=kafka_version) as world:
        connection = await world[1].connect()
        await leave_three_groups(world, connection, "left")
        for group in ("g", "alone"):
            assert (await connection.call(delete_request(0, topic="left", group=group))).error_code == 0
        assert listed(world) == ({"g", "alone", "living"} if stays else {"living"})
        again = await connection.call(delete_request(0, topic="left", group="alone"))
        assert again.error_code == (ErrorCode.NONE if stays else ErrorCode.GROUP_ID_NOT_FOUND)
        await connection.close()


async def test_offset_deletion_of_subscribed_topic_is_refused() -> None:
    async with group_world() as world:
        connection = await world[1].connect()
        await world.create_topic(1, "left")
        member = await consume(connection, TOPIC)
        await connection.call(commit_request({0: 1}, member=member))
        await connection.call(commit_request({0: 1}, member=member, topic="left"))
        response = await connection.call(delete_request(0, 99))
        assert response.error_code == 0 and errors_in(response)[0] is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert errors_in(await connection.call(delete_request(0, topic="left"))) == {0: ErrorCode.NONE}
        assert committed(world) == {(TOPIC, 0)}
        await connection.close()


@pytest.mark.parametrize(
    ("group", "error"),
    [
        ("connect", ErrorCode.NON_EMPTY_GROUP),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_GROUP_ID),
    ],
)
async def test_group_error_of_offset_deletion_is_top_level(group: str, error: ErrorCode) -> None:
    async with group_world() as world:
        connection = await world[1].connect()
        if group == "connect":
            await consume(connection, TOPIC, protocol_type="connect")
        request = delete_request(0, 99, group="g" if group == "connect" else group)
        response = await connection.call(request)
        assert ErrorCode(response.error_code) is error
        assert errors_in(response) == {}, "Kafka leaves out what it has found out about partitions"
        await connection.close()


# --- expired -----------------------------------------------------------------------------------------------------


async def test_commit_to_a_group_that_is_loaded_again_during_the_retention_check_does_not_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with group_world(offsets_retention_minutes=1) as world:
        connection, groups = await world[1].connect(), world.groups(1)
        for group in ("first", "second"):
            await connection.call(commit_request({0: 1}, group=group))
        world.late_ms = 2 * MINUTE_MS
        forget = groups.offsets.forget

        async def load_again() -> None:
            groups.table.leadership.on_resign(CONSUMER_OFFSETS_TOPIC, 0)
            groups.on_leader(CONSUMER_OFFSETS_TOPIC, 0, 1)
            await until(lambda: not groups.loading)

        async def slow(slot: GroupEntry, *arguments: Any, **named: Any) -> None:
            await forget(slot, *arguments, **named)
            if slot.group_id == "first":
                await load_again()
                await connection.call(commit_request({0: 5}, group="second"))

        monkeypatch.setattr(groups.offsets, "forget", slow)
        await groups.offsets.expire()
        await load_again()
        assert groups.offsets.of("second").offset_of((TOPIC, 0)) == 5
        await connection.close()


async def test_offsets_of_unsubscribed_topics_expire_while_members_run() -> None:
    async with group_world(offsets_retention_minutes=1) as world:
        connection = await world[1].connect()
        await world.create_topic(1, "left")
        member = await consume(connection, TOPIC)
        await connection.call(commit_request({0: 1}, member=member))
        await connection.call(commit_request({0: 1}, member=member, topic="left"))
        world.late_ms = MINUTE_MS - 5000
        await world.groups(1).offsets.expire()
        assert committed(world) == {(TOPIC, 0), ("left", 0)}
        world.late_ms = MINUTE_MS
        await world.groups(1).offsets.expire()
        assert committed(world) == {(TOPIC, 0)}
        await connection.close()


async def test_offset_retention_of_an_empty_group_starts_when_it_became_empty() -> None:
    async with group_world(brokers=2, offsets_retention_minutes=1) as world:
        connection = await world[1].connect()
        member = await consume(connection, TOPIC)
        await connection.call(commit_request({0: 1}, member=member))
        world.late_ms = MINUTE_MS
        await connection.call(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member[0])]))
        world.late_ms = 2 * MINUTE_MS - 5000
        await connection.call(commit_request({1: 1}))
        await world.groups(1).offsets.expire()
        assert committed(world) == {(TOPIC, 0), (TOPIC, 1)}
        world.late_ms = 2 * MINUTE_MS
        await world.groups(1).offsets.expire()
        assert world.groups(1).group("g") is None, "even the late commit: it counts from when the group became Empty"
        await world.coordinate(2)
        assert world.groups(2).group("g") is None, "its own record has a tombstone too"
        await connection.close()


async def test_retention_time_of_commit_v4_is_applied() -> None:
    async with group_world() as world:
        connection = await world[1].connect()
        request = commit_request({0: 1})
        request.retention_time_ms = 1000
        assert commit_errors(await connection.call(request, version=4)) == [ErrorCode.NONE]
        await connection.call(commit_request({1: 1}))
        world.late_ms = 2000
        await world.groups(1).offsets.expire()
        assert committed(world) == {(TOPIC, 1)}
        group = world.groups(1).group("g")
        assert group is not None and group.state is EMPTY
        await connection.close()


async def test_infinite_retention_time_of_commit_v4_is_applied() -> None:
    async with group_world() as world:
        connection = await world[1].connect()
        request = commit_request({0: 1})
        request.retention_time_ms = 2**63 - 1
        assert commit_errors(await connection.call(request, version=4)) == [ErrorCode.NONE]
        world.late_ms = 1000 * MINUTE_MS
        await world.groups(1).offsets.expire()
        assert committed(world) == {(TOPIC, 0)}
        await connection.close()


# --- compacted ---------------------------------------------------------------------------------------------------


async def test_compacted_journal_replays_to_the_same_state() -> None:
    async with group_world() as world:
        connection = await world[1].connect()
        member = await consume(connection, TOPIC)
        for offset in range(200):
            await connection.call(commit_request({0: offset, 1: 2 * offset}, member=member))
        groups, log = world.groups(1), world[1].replicas.leader_of(CONSUMER_OFFSETS_TOPIC, 0).log
        before = log.size_bytes
        log.roll(log.log_end_offset)
        now_ms = world.clock_ms()
        cleaning = Cleaning(log._files, log, cleanable_part(log, log.log_end_offset, now_ms), now_ms)
        while cleaning.step():
            pass
        assert log.size_bytes < before / 10
        offsets = dict(groups.offsets.of("g").committed)
        groups.table.leadership.on_resign(CONSUMER_OFFSETS_TOPIC, 0)
        groups.on_leader(CONSUMER_OFFSETS_TOPIC, 0, 9)
        await until(lambda: not groups.loading)
        assert groups.offsets.of("g").committed == offsets
        group = groups.group("g")
        assert group is not None and list(group.members.by_id) == [member[0]]
        await connection.close()


def test_metadata_length_is_counted_as_in_java() -> None:
    assert [utf16_length(text) for text in ("", "ab", "ü", "\N{GRINNING FACE}")] == [0, 2, 1, 2]


# --- many at once ------------------------------------------------------------------------------------------------


WIDE: Final = 3000


@asynccontextmanager
async def world_with_many_offsets(**settings: Any) -> AsyncIterator[tuple[GroupWorld, GroupEntry]]:
    """A group with committed offsets in thousands of partitions, and one in another topic."""
    async with group_world(**settings) as world:
        await world.create_topic(WIDE, "wide")
        everything = commit_request(dict.fromkeys(range(WIDE), 7), topic="wide")
        everything.topics += commit_request({0: 7}).topics
        await offset_commit(context(world[1].services, 9), everything)
        yield world, world.groups(1).table.slots["g"]


def commit_again(world: GroupWorld, slot: GroupEntry) -> None:
    """Apply a commit of one partition that is newer than the stored one, and older than the tombstones."""
    value = CommittedOffset(offset=8, commit_timestamp_ms=world.groups(1).date_ms())
    slot.offsets.commit_all({("wide", 5): value}, 6)


async def test_deletion_of_many_offsets_yields_and_is_one_batch() -> None:
    async with world_with_many_offsets() as (world, slot):
        log = world[1].services.replicas.leader_of(CONSUMER_OFFSETS_TOPIC, 0).log
        first = log.log_end_offset
        request = delete_request(*range(WIDE), topic="wide")
        response, others = await yields_of(offset_delete(context(world[1].services, 0), request))
        assert set(errors_in(response).values()) == {ErrorCode.NONE}
        assert others >= 2 * WIDE // (ELEMENTS_PER_YIELD + 1) and set(slot.offsets.committed) == {(TOPIC, 0)}
        (batch,) = iter_batches(bytes(log.read(first, 1 << 20, limit_offset=log.log_end_offset)))
        assert batch[1].record_count == WIDE


async def test_deletion_of_a_lost_connection_deletes_nothing() -> None:
    """Its client may have deleted them by another connection, and the group have committed again."""
    async with world_with_many_offsets() as (world, slot):
        request = delete_request(*range(WIDE), topic="wide")
        await refused_after_loss(lambda peer: offset_delete(context(world[1].services, 0, peer), request))
        assert len(slot.offsets.committed) == WIDE + 1


async def test_offset_that_is_committed_while_many_expire_stays() -> None:
    async with world_with_many_offsets(offsets_retention_minutes=1) as (world, slot):
        coordinator = world.groups(1)
        world.late_ms = 2 * MINUTE_MS
        await while_it_yields(coordinator.offsets.expire(), lambda: commit_again(world, slot))
        assert slot.offsets.committed.keys() == {("wide", 5)}


async def test_offset_of_a_new_topic_stays_while_those_of_the_deleted_one_are_removed() -> None:
    """Also if the old one had none in the partition but one that a transaction has not committed."""
    async with world_with_many_offsets() as (world, slot):
        ctx, offsets, date_ms = context(world[1].services, 9), slot.offsets, world.groups(1).date_ms()
        for partition in (("wide", WIDE), ("wide", WIDE + 1)):
            offsets.stage(1, partition, CommittedOffset(offset=7, commit_timestamp_ms=date_ms, journal_offset=3))
        new: list[asyncio.Future[Any]] = []

        def commit_to_new_topic() -> None:
            new.append(asyncio.ensure_future(offset_commit(ctx, commit_request({5: 8}, topic="wide"))))
            later = world.groups(1).journal.end_offset(0)
            value = CommittedOffset(offset=8, commit_timestamp_ms=date_ms, journal_offset=later)
            offsets.stage(2, ("wide", WIDE + 1), value)

        removal = world.groups(1).offsets.remove_topics(slot, offsets.partitions_of({"wide"}))
        await while_it_yields(removal, commit_to_new_topic)
        assert commit_errors(await new[0]) == [ErrorCode.NONE]
        assert offsets.committed.keys() == {("wide", 5), (TOPIC, 0)}
        assert offsets.staged[2].keys() == {("wide", WIDE + 1)} and ("wide", WIDE) not in offsets.staged.get(1, ())


async def test_commit_to_a_new_topic_that_is_replicated_after_the_removal_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world_with_many_offsets() as (world, slot):
        ctx, new = context(world[1].services, 9), list[asyncio.Future[Any]]()
        _, released = hold_first_write(world, monkeypatch)
        removal = world.groups(1).offsets.remove_topics(slot, slot.offsets.partitions_of({"wide"}))
        request = commit_request({5: 8}, topic="wide")
        await while_it_yields(removal, lambda: new.append(asyncio.ensure_future(offset_commit(ctx, request))))
        released.set()
        assert commit_errors(await new[0]) == [ErrorCode.NONE]
        assert slot.offsets.committed.keys() == {("wide", 5), (TOPIC, 0)}


async def test_offsets_of_a_topic_that_is_deleted_during_the_load_are_removed() -> None:
    async with world_with_many_offsets() as (world, _):
        coordinator = world.groups(1)
        coordinator.table.leadership.on_resign(CONSUMER_OFFSETS_TOPIC, 0)
        coordinator.on_leader(CONSUMER_OFFSETS_TOPIC, 0, 1)
        for _ in range(4):
            await asyncio.sleep(0)
        assert coordinator.loading, "it has not yielded so often"
        world.delete_topic("wide", partitions=WIDE)
        await until(lambda: not coordinator.loading and not coordinator.background._tasks)
        assert committed(world) == {(TOPIC, 0)}


async def test_group_that_is_joined_while_its_deletion_yields_stays() -> None:
    async with world_with_many_offsets() as (world, slot):
        joining = []

        def join() -> None:
            coordinator = world.groups(1)
            ctx = context(world[1].services, 3)
            joining.append(asyncio.ensure_future(join_group(ctx, join_request())))
            assert coordinator.table.slots["g"] is slot

        with pytest.raises(KafkaError) as refused:
            await while_it_yields(world.groups(1).delete("g"), join)
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        assert len(slot.offsets.committed) == WIDE + 1
        assert (await joining[0]).error_code == 0


async def test_retention_check_yields_between_many_groups() -> None:
    async with group_world() as world:
        coordinator = world.groups(1)
        for number in range(3 * ELEMENTS_PER_YIELD):
            coordinator.table.find_or_create(f"group-{number}")
        _, others = await yields_of(coordinator.offsets.expire())
        assert others >= 2


def hold_first_write(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """The next append of the coordinator completes only after an event; the other tells that it is in the log."""
    journal, written, released = world.groups(1).journal, asyncio.Event(), asyncio.Event()
    write = journal._write

    async def write_slowly(*values: Any, **options: Any) -> int:
        first_offset = await write(*values, **options)
        if not written.is_set():
            written.set()
            await released.wait()
        return first_offset

    monkeypatch.setattr(journal, "_write", write_slowly)
    return written, released


async def test_commit_that_is_replicated_after_its_topic_was_deleted_is_not_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new topic of the name would be read from the offset of the old one."""
    async with group_world() as world:
        coordinator, connection = world.groups(1), await world[1].connect()
        written, released = hold_first_write(world, monkeypatch)
        committing = asyncio.ensure_future(connection.call(commit_request({0: 7})))
        await written.wait()
        coordinator.on_topics_gone({TOPIC: bytes(16)})
        await until(lambda: not coordinator.background._tasks)
        released.set()
        await committing
        assert committed(world) == set()


async def test_commit_that_is_replicated_while_the_offsets_of_its_deleted_topic_are_removed_is_removed_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world_with_many_offsets() as (world, slot):
        coordinator, ctx = world.groups(1), context(world[1].services, 9)
        written, released = hold_first_write(world, monkeypatch)
        committing = asyncio.ensure_future(offset_commit(ctx, commit_request({5: 8}, topic="wide")))
        await written.wait()
        removal = coordinator.offsets.remove_topics(slot, slot.offsets.partitions_of({"wide"}))
        await while_it_yields(removal, released.set)
        assert commit_errors(await committing) == [ErrorCode.NONE]
        assert committed(world) == {(TOPIC, 0)}
