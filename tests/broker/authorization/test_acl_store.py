"""ACLs in ZooKeeper: changes of one broker are in force at all others, and none is lost."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.authorization.acl_store import AclWatch, change_acls, prepare_parents
from anabranch.broker.authorization.authorizer import Authorizer
from anabranch.broker.tasks.supervised_task import log_failure
from anabranch.controller.zk import acl_znodes
from anabranch.controller.zk.body import MalformedZnode
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.controller.zk.session import NoNode, ZkSession
from anabranch.protocol.acls import Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType
from tests.broker.serving import until

TOPIC = ResourcePattern(ResourceType.TOPIC, "t")
TOPICS = ResourcePattern(ResourceType.TOPIC, "t", PatternType.PREFIXED)


def reader(user: str) -> Acl:
    return Acl(f"User:{user}", "*", Operation.READ, Permission.ALLOW)


def reads(authorizer: Authorizer, user: str) -> bool:
    return authorizer.allows(f"User:{user}", "127.0.0.1", Operation.READ, ResourceType.TOPIC, "t")


async def watching(session: ZkSession) -> tuple[Authorizer, AclWatch]:
    authorizer = Authorizer()
    watch = AclWatch(authorizer, log_failure)
    await watch.watch(session)
    return authorizer, watch


@pytest.mark.parametrize("pattern", [TOPIC, TOPICS])
async def test_acl_change_takes_effect_on_every_broker(pattern: ResourcePattern) -> None:
    zookeeper = MemoryZooKeeper()
    writer = await zookeeper.connect()
    brokers = [await watching(await zookeeper.connect()) for _ in range(3)]
    assert await change_acls(writer, pattern, lambda before: before | {reader("a"), reader("b"), reader("c")}) == set()
    await until(lambda: all(reads(authorizer, "a") for authorizer, _ in brokers))
    await change_acls(writer, pattern, lambda before: before - {reader("a")})
    await until(lambda: not any(reads(authorizer, "a") for authorizer, _ in brokers))
    assert all(reads(authorizer, user) for authorizer, _ in brokers for user in "bc")
    had = await change_acls(writer, pattern, lambda before: ())
    assert had == {reader("b"), reader("c")}
    await until(lambda: not any(authorizer.acls for authorizer, _ in brokers))
    with pytest.raises(NoNode):
        await writer.get(acl_znodes.path_of(pattern))
    for _, watch in brokers:
        await watch.stop()


async def test_concurrent_writers_lose_no_acl() -> None:
    zookeeper = MemoryZooKeeper()
    sessions = [await zookeeper.connect() for _ in range(5)]
    users = [reader(f"u{number}") for number in range(5)]
    await asyncio.gather(
        *(change_acls(one, TOPIC, lambda before, user=user: before | {user}) for one, user in zip(sessions, users))  # type: ignore[misc] # noqa: B905
    )
    authorizer, watch = await watching(sessions[0])
    assert authorizer.acls == {TOPIC: frozenset(users)}
    await watch.stop()


async def test_edit_without_effect_writes_no_change_notification() -> None:
    session = await MemoryZooKeeper().connect()
    await prepare_parents(session)
    await change_acls(session, TOPIC, lambda before: before)
    await change_acls(session, TOPIC, lambda before: before | {reader("a")})
    await change_acls(session, TOPIC, lambda before: before | {reader("a")})
    assert len(await session.children(acl_znodes.CHANGES[PatternType.LITERAL])) == 1


async def test_restarted_watch_drops_acls_removed_while_it_was_stopped() -> None:
    zookeeper = MemoryZooKeeper()
    writer = await zookeeper.connect()
    await change_acls(writer, TOPIC, lambda before: {reader("a")})
    await change_acls(writer, TOPICS, lambda before: {reader("b")})
    authorizer, watch = await watching(await zookeeper.connect())
    assert reads(authorizer, "a")
    assert reads(authorizer, "b")
    await watch.stop()
    await change_acls(writer, TOPIC, lambda before: ())
    await watch.watch(await zookeeper.connect())
    assert not reads(authorizer, "a")
    assert reads(authorizer, "b")
    await watch.stop()


async def test_acls_written_by_kafka_are_applied() -> None:
    session = await MemoryZooKeeper().connect()
    authorizer, watch = await watching(session)
    await session.create(acl_znodes.path_of(TOPIC), acl_znodes.encode_acls([reader("a")]))
    await session.create("/kafka-acl-changes/acl_changes_", b"Topic:t", sequence=True)
    await until(lambda: reads(authorizer, "a"))
    await watch.stop()


async def test_malformed_acl_znode_keeps_the_previous_acls(caplog: pytest.LogCaptureFixture) -> None:
    session = await MemoryZooKeeper().connect()
    authorizer, watch = await watching(session)
    await change_acls(session, TOPIC, lambda before: {reader("a")})
    await until(lambda: reads(authorizer, "a"))
    await session.set(acl_znodes.path_of(TOPIC), b"nonsense")
    await session.create(*acl_znodes.encode_change(TOPIC), sequence=True)
    await until(lambda: "ignoring a malformed change of ACLs" in caplog.text)
    assert reads(authorizer, "a")
    await watch.stop()
    with pytest.raises(MalformedZnode):
        await watch.watch(session)
    await watch.stop()
