"""Reads, their watches, and ignored malformed znodes."""

from __future__ import annotations

import asyncio
import random

import pytest

from anabranch.controller import topic_admin
from anabranch.controller.model import Broker, Endpoint
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper
from anabranch.controller.znode_reader import Read, ZnodeReader


async def prepared() -> tuple[MemorySession, ZnodeReader, list[Read]]:
    session = await MemoryZooKeeper().connect()
    for path in paths.ALWAYS_CREATED:
        await session.create(path, make_parents=True)
    changed: list[Read] = []
    return session, ZnodeReader(session, random.Random(1), changed.append), changed


async def create(session: MemorySession, name: str = "t") -> None:
    await topic_admin.create_topic(
        session, name=name, topic_id=name.encode() * 16, assignment={0: [1]}, configs={"a": "b"}
    )


async def test_broker_is_read_with_its_epoch_and_watched() -> None:
    session, reader, changed = await prepared()
    registered = Broker(4, -1, (Endpoint("PLAINTEXT", "h", 1),))
    _, stat = await session.create_with_stat(paths.broker(4), znodes.encode_broker(registered, timestamp_ms=0))
    assert {one.epoch for one in (await reader.brokers()).values()} == {stat.czxid}
    await session.delete(paths.broker(4))
    await asyncio.sleep(0)
    assert changed and set(changed) == {Read("brokers")}


@pytest.mark.parametrize("change", ["topic", "config", "new config"])
async def test_change_of_topic_znode_or_configuration_is_noticed(change: str) -> None:
    session, reader, changed = await prepared()
    await create(session)
    if change == "new config":
        await session.delete(paths.topic_config("t"))
    topic = await reader.topic("t")
    assert topic is not None and topic.config == ({} if change == "new config" else {"a": "b"})
    match change:
        case "topic":
            await session.set(paths.topic("t"), (await session.get(paths.topic("t")))[0])
        case "config":
            await session.set(paths.topic_config("t"), znodes.encode_config({}))
        case _:
            await session.create(paths.topic_config("t"), znodes.encode_config({}))
    await asyncio.sleep(0)
    assert changed == [Read("topic", "t")]


async def test_reads_that_are_repeated_leave_one_watch_on_each_znode() -> None:
    """Else each broker that comes or goes, and each change of a topic's configuration, would leave another one."""
    session, reader, changed = await prepared()
    await create(session)
    for broker_id in (4, 5):
        registered = Broker(broker_id, -1, (Endpoint("PLAINTEXT", "h", 1),))
        await session.create(paths.broker(broker_id), znodes.encode_broker(registered, timestamp_ms=0))
    for _ in range(3):
        await reader.brokers()
        await reader.topic("t")
    await session.delete(paths.broker(4))
    await session.set(paths.topic("t"), (await session.get(paths.topic("t")))[0])
    await asyncio.sleep(0)
    assert changed == [Read("brokers")] * 2 + [Read("topic", "t")], "the parent's watch, and that of the znode"


async def test_malformed_znodes_are_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    session, reader, _ = await prepared()
    await create(session)
    await create(session, "u")
    await session.set(paths.topic("t"), b"{")
    await session.create(paths.broker(1), b"nonsense")
    assert [one.topic.name for one in await reader.snapshots(["t", "u", "gone"])] == ["u"]
    assert await reader.brokers() == {}
    assert "ignoring topic t" in caplog.text and "/brokers/ids/1" in caplog.text
    await session.set(paths.topic_config("u"), b"{")
    topic = await reader.topic("u")
    assert topic is not None and topic.config == {} and paths.topic_config("u") in caplog.text


async def test_snapshots_contain_existing_states_and_a_spare_topic_id() -> None:
    session, reader, _ = await prepared()
    await create(session)
    (snapshot,) = await reader.snapshots(["t"])
    assert snapshot.partitions == {} and len(snapshot.fresh_id) == 16
