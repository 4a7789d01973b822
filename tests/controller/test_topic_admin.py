"""Creation and deletion of topics by znodes."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.controller import topic_admin
from anabranch.controller.topics import complete_body
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper
from anabranch.protocol.errors import ErrorCode, KafkaError

ID = bytes(range(16))


async def create(session: MemorySession, topic_id: bytes = ID, partitions: int = 6) -> None:
    assignment = {index: [1, 2] for index in range(partitions)}
    await topic_admin.create_topic(
        session, name="t", topic_id=topic_id, assignment=assignment, configs={"retention.ms": "1"}
    )


async def test_created_topic_has_its_first_generation() -> None:
    session = await MemoryZooKeeper().connect()
    await create(session)
    body = znodes.decode_topic("", (await session.get(paths.topic("t")))[0])
    assert (body.topic_id, body.base, body.generation, body.history) == (ID, 3, 0, ((0, 6),))
    assert body.undeleted_partition_count == body.initial_partition_count == 6
    assert complete_body(body, ID) == body, "the controller has nothing to add"
    assert znodes.decode_config("", (await session.get(paths.topic_config("t")))[0]) == {"retention.ms": "1"}


async def test_topic_that_is_created_twice_at_once_has_the_configuration_of_the_request_that_made_it() -> None:
    """A producer creates the topic automatically while an administrator creates it, over one session or over two."""
    zookeeper = MemoryZooKeeper()
    one = await zookeeper.connect()
    for number, other in enumerate((one, await zookeeper.connect())):

        async def make(session: MemorySession, configs: dict[str, str], name: str = f"t{number}") -> None:
            topic_id = bytes(16) if configs else ID
            await topic_admin.create_topic(session, name=name, topic_id=topic_id, assignment={0: [1]}, configs=configs)

        outcomes = await asyncio.gather(make(one, {"retention.ms": "1"}), make(other, {}), return_exceptions=True)
        assert [type(failed) for failed in outcomes if failed is not None] == [KafkaError]
        body = znodes.decode_topic("", (await one.get(paths.topic(f"t{number}")))[0])
        config = znodes.decode_config("", (await one.get(paths.topic_config(f"t{number}")))[0])
        assert bool(config) == (body.topic_id == bytes(16))


async def test_name_is_taken_while_topic_exists_or_is_being_deleted() -> None:
    session = await MemoryZooKeeper().connect()
    await create(session)
    with pytest.raises(KafkaError) as refused:
        await create(session, bytes(16))
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    await topic_admin.delete_topic(session, "t")
    await topic_admin.delete_topic(session, "t")
    with pytest.raises(KafkaError, match="marked for deletion"):
        await create(session)
    await session.delete(paths.topic("t"))
    with pytest.raises(KafkaError, match="marked for deletion"):
        await create(session)


async def test_deletion_of_missing_topic_is_refused() -> None:
    session = await MemoryZooKeeper().connect()
    with pytest.raises(KafkaError) as refused:
        await topic_admin.delete_topic(session, "nope")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("carry_out", [True, False])
async def test_lost_reply_neither_fails_nor_repeats_a_creation(carry_out: bool) -> None:
    zookeeper = MemoryZooKeeper()
    session = await zookeeper.connect()
    creating = asyncio.ensure_future(create(session))
    for _ in range(60):
        await asyncio.sleep(0)
        if not creating.done():
            session.lose_connection(carry_out=carry_out)
            session.reconnect()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    await creating
    assert await session.exists(paths.topic("t")) is not None


@pytest.mark.parametrize(("carry_out", "created_again"), [(False, False), (True, False), (True, True)])
async def test_lost_reply_to_a_deletion_never_deletes_another_topic(
    monkeypatch: pytest.MonkeyPatch, carry_out: bool, created_again: bool
) -> None:
    """The controller completes the deletion, and the name is in use again, before the node is connected again."""
    zookeeper = MemoryZooKeeper()
    session, other = await zookeeper.connect(), await zookeeper.connect()
    await create(session)
    write = session.create_with_stat

    async def lose_reply(path: str, data: bytes, **options: bool) -> object:
        monkeypatch.undo()
        writing = asyncio.ensure_future(write(path, data, **options))
        await asyncio.sleep(0)
        session.lose_connection(carry_out=carry_out)
        if carry_out:
            for gone in (paths.topic("t"), paths.topic_config("t"), paths.delete_topic("t")):
                await other.delete(gone)
        if created_again:
            await create(other, bytes(16))
        session.reconnect()
        return await writing

    monkeypatch.setattr(session, "create_with_stat", lose_reply)
    await topic_admin.delete_topic(session, "t")
    assert await topic_admin.is_going(other, "t") is not carry_out
    assert (await other.exists(paths.topic("t")) is None) == (carry_out and not created_again)


async def test_topic_is_deleted_through_a_server_that_lags_behind_its_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    session = await MemoryZooKeeper().connect()
    await create(session)
    exists, synced = session.exists, asyncio.Event()

    async def exists_late(path: str) -> object:
        return await exists(path) if synced.is_set() else None

    async def sync() -> None:
        synced.set()

    monkeypatch.setattr(session, "exists", exists_late)
    monkeypatch.setattr(session, "sync", sync)
    await topic_admin.delete_topic(session, "t")
    assert await topic_admin.is_going(session, "t")


async def test_deletion_by_another_id_is_refused() -> None:
    session = await MemoryZooKeeper().connect()
    await create(session)
    with pytest.raises(KafkaError) as refused:
        await topic_admin.delete_topic(session, "t", bytes(15) + b"1")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert not await topic_admin.is_going(session, "t")
    await topic_admin.delete_topic(session, "t", ID)
    assert await topic_admin.is_going(session, "t")


async def test_deletion_that_was_written_unheard_is_not_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic still exists when the node is connected again; when it would write, there may be another one."""
    session = await MemoryZooKeeper().connect()
    await create(session)
    write, requested = session.create_with_stat, []

    async def lose_reply(path: str, data: bytes, **options: bool) -> object:
        assert not requested, "the deletion is requested again"
        requested.append(path)
        writing = asyncio.ensure_future(write(path, data, **options))
        await asyncio.sleep(0)
        session.lose_connection(carry_out=True)
        session.reconnect()
        return await writing

    monkeypatch.setattr(session, "create_with_stat", lose_reply)
    await topic_admin.delete_topic(session, "t")
    assert await topic_admin.is_going(session, "t")
    assert requested == [paths.delete_topic("t")]


async def test_expired_session_gets_not_controller() -> None:
    server = MemoryZooKeeper()
    session = await server.connect()
    await create(session)
    server.expire(session)
    for work in (create(session), topic_admin.delete_topic(session, "t")):
        with pytest.raises(KafkaError) as refusal:
            await work
        assert refusal.value.code == ErrorCode.NOT_CONTROLLER


async def test_partitions_must_be_numbered_without_gaps() -> None:
    session = await MemoryZooKeeper().connect()
    with pytest.raises(KafkaError):
        await topic_admin.create_topic(session, name="t", topic_id=ID, assignment={1: [1]}, configs={})
    assert await session.exists(paths.topic("t")) is None
