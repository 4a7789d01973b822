"""Announcements: each new one is taken up once, in order, whatever stands beside it."""

from __future__ import annotations

from anabranch.broker.config.change_notifications import ChangeNotifications, sequence_number
from anabranch.broker.tasks.supervised_task import FatalNodeError
from anabranch.controller.zk.body import MalformedZnode
from anabranch.controller.zk.memory import MemoryZooKeeper
from tests.broker.serving import until


async def test_each_new_one_is_taken_up_once_and_in_order() -> None:
    session = await MemoryZooKeeper().connect()
    await session.create("/news")
    await session.create("/news/item_", b"old", sequence=True)
    taken: list[bytes] = []

    async def take(path: str, data: bytes) -> None:
        taken.append(data)
        if data == b"nonsense":
            raise MalformedZnode(path, "planted")

    news = ChangeNotifications("piece of news", "/news/item_", take, "news")
    await news.watch(session)
    await session.create("/news/item_x", b"no number")
    for data in (b"first", b"nonsense", b"second"):
        await session.create("/news/item_", data, sequence=True)
    await until(lambda: taken == [b"first", b"nonsense", b"second"])
    await news.stop()


async def test_a_bug_in_taking_one_up_is_told_to_the_node() -> None:
    session = await MemoryZooKeeper().connect()
    await session.create("/news")
    told: list[FatalNodeError] = []

    async def take(path: str, data: bytes) -> None:
        raise RuntimeError("planted")

    news = ChangeNotifications("piece of news", "/news/item_", take, "news")
    news.on_failure = told.append
    await news.watch(session)
    await session.create("/news/item_", b"", sequence=True)
    await until(lambda: bool(told))
    assert "planted" in str(told[0])


def test_a_number_is_what_follows_the_name() -> None:
    names = ("config_change_0000000012", "config_change_x", "12")
    assert [sequence_number(name, "config_change_") for name in names] == [12, -1, -1]
