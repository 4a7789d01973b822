"""Configuration changes: conditional writes, notifications in Kafka's format, and their deletion."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.config import config_changes
from anabranch.broker.config.config_changes import (
    ChangeNotifications,
    ConfigChanges,
    change_config,
    read_config,
    sequence_number,
)
from anabranch.broker.membership import registration
from anabranch.broker.tasks.supervised_task import FatalNodeError
from anabranch.controller.zk import paths
from anabranch.controller.zk.body import MalformedZnode
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.controller.zk.session import ZkSession
from tests.broker.serving import until


async def watching(session: ZkSession, notified: list[str]) -> ConfigChanges:
    async def topic(name: str) -> None:
        notified.append(name)

    changes = ConfigChanges({"topics": topic})
    await changes.watch(session)
    return changes


async def test_config_change_notifies_every_node() -> None:
    zookeeper = MemoryZooKeeper()
    writer, reader = await zookeeper.connect(), await zookeeper.connect()
    await registration.prepare_parents(writer)
    notified: list[str] = []
    changes = await watching(reader, notified)
    await change_config(writer, "topics/t", lambda before: {**before, "a": "1"})
    await change_config(writer, "topics/t", lambda before: {**before, "b": "2"})
    await change_config(writer, "users/u/clients/c", lambda before: {"producer_byte_rate": "1"})
    await until(lambda: notified == ["t", "t"])
    assert await read_config(reader, "topics/t") == {"a": "1", "b": "2"}
    data, _ = await reader.get(f"{paths.CONFIG_CHANGE_PREFIX}0000000000")
    assert data == b'{"version":2,"entity_path":"topics/t"}'
    await changes.stop()


async def test_concurrent_writers_lose_no_change() -> None:
    """Kafka's brokers write without a condition, and the slower one wins."""
    zookeeper = MemoryZooKeeper()
    writers = [await zookeeper.connect() for _ in range(4)]
    await registration.prepare_parents(writers[0])

    def adding(name: str) -> config_changes.Edit:
        return lambda before: {**before, name: "1"}

    await asyncio.gather(*(change_config(one, "topics/t", adding(f"{place}")) for place, one in enumerate(writers)))
    assert await read_config(writers[0], "topics/t") == {"0": "1", "1": "1", "2": "1", "3": "1"}


async def test_notifications_before_the_start_are_skipped() -> None:
    session = await MemoryZooKeeper().connect()
    await registration.prepare_parents(session)
    await change_config(session, "topics/old", dict)
    notified: list[str] = []
    changes = await watching(session, notified)
    await change_config(session, "topics/new", dict)
    await until(lambda: notified == ["new"])
    await changes.stop()


async def test_expired_notifications_are_deleted() -> None:
    session = await MemoryZooKeeper().connect()
    await registration.prepare_parents(session)
    notified: list[str] = []
    changes = await watching(session, notified)
    await change_config(session, "topics/first", dict)
    await until(lambda: notified == ["first"])
    await change_config(session, "topics/second", dict)
    await until(lambda: notified == ["first", "second"])
    for name in changes._seen:
        changes._seen[name] -= config_changes.RETENTION_S
    await change_config(session, "topics/third", dict)
    while len(await session.children(paths.CONFIG_CHANGES)) > 1:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert await session.children(paths.CONFIG_CHANGES) == ["config_change_0000000002"]
    await changes.stop()


async def test_malformed_notification_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    session = await MemoryZooKeeper().connect()
    await registration.prepare_parents(session)
    notified: list[str] = []
    changes = await watching(session, notified)
    await session.create(f"{paths.CONFIG_CHANGES}/config_change_x")
    await session.create(paths.CONFIG_CHANGE_PREFIX, b"not json", sequence=True)
    await change_config(session, "topics/t", dict)
    await until(lambda: notified == ["t"])
    await changes.stop()
    assert "ignoring a malformed change of configuration" in caplog.text


async def test_each_notification_is_handled_once_and_in_order() -> None:
    session = await MemoryZooKeeper().connect()
    await session.create("/news")
    await session.create("/news/item_", b"old", sequence=True)
    taken: list[bytes] = []

    async def take(path: str, data: bytes) -> None:
        taken.append(data)
        if data == b"nonsense":
            raise MalformedZnode(path, "planted")

    notifications = ChangeNotifications("piece of news", "/news/item_", take, "news")
    await notifications.watch(session)
    await session.create("/news/item_x", b"no number")
    for data in (b"first", b"nonsense", b"second"):
        await session.create("/news/item_", data, sequence=True)
    await until(lambda: taken == [b"first", b"nonsense", b"second"])
    await notifications.stop()


async def test_exception_in_the_handler_is_reported_as_a_fatal_node_error() -> None:
    session = await MemoryZooKeeper().connect()
    await session.create("/news")
    bugs: list[FatalNodeError] = []

    async def take(path: str, data: bytes) -> None:
        raise RuntimeError("planted")

    notifications = ChangeNotifications("piece of news", "/news/item_", take, "news")
    notifications.on_failure = bugs.append
    await notifications.watch(session)
    await session.create("/news/item_", b"", sequence=True)
    await until(lambda: bool(bugs))
    assert "planted" in str(bugs[0])


def test_sequence_number_follows_the_prefix() -> None:
    names = ("config_change_0000000012", "config_change_x", "12")
    assert [sequence_number(name, "config_change_") for name in names] == [12, -1, -1]
