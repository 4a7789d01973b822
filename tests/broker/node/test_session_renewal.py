"""A node joins until it succeeds, and again after its session has expired."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from anabranch.broker.membership.registration import DuplicateBroker
from anabranch.broker.node import session_renewal
from anabranch.broker.node.session_renewal import SessionRenewal
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.controller.zk.session import ConnectionLoss, NoServerListens, SessionExpired, ZkSession
from tests.broker.serving import until


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_renewal, "RENEWAL_PAUSE_S", 0)


class Member:
    """A node that only takes notes."""

    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.joins: list[ZkSession] = []
        self.left: list[ZkSession] = []
        self.expirations = 0
        self.reasons: list[Exception] = []
        self.during_join: list[Callable[[ZkSession], Awaitable[None]]] = []
        """What happens in the next joins."""
        self.refusals: list[Exception] = []
        """How the next attempts to connect fail."""
        self.renewal = SessionRenewal(
            1, self.connect, join=self.join, leave=self.leave, on_expired=self.on_expired, give_up=self.reasons.append
        )

    async def connect(self) -> ZkSession:
        if self.refusals:
            raise self.refusals.pop(0)
        return await self.zookeeper.connect()

    async def join(self, session: ZkSession) -> None:
        self.joins.append(session)
        if self.during_join:
            await self.during_join.pop(0)(session)

    async def leave(self, session: ZkSession) -> None:
        self.left.append(session)
        await session.close()

    def on_expired(self) -> None:
        self.expirations += 1

    async def expire(self, session: ZkSession) -> None:
        """Expire a session, and let its owner learn it."""
        known = self.expirations
        self.zookeeper.expire(session)  # type: ignore[arg-type]
        await until(lambda: self.expirations > known)

    async def lose(self, _: ZkSession) -> None:
        raise ConnectionLoss

    async def meet_another(self, _: ZkSession) -> None:
        raise DuplicateBroker("another process is registered")


async def test_failed_join_is_repeated_under_a_new_session() -> None:
    member = Member()
    member.during_join = [member.lose, member.lose]
    member.refusals = [ConnectionLoss()]
    await member.renewal.join(None)
    first, second, third = member.joins
    assert member.left == [first, second] and third is not second
    assert not member.expirations and not member.reasons


async def test_node_joins_again_once_the_session_has_expired() -> None:
    member = Member()
    await member.renewal.join(None)
    await member.expire(member.joins[0])
    await until(lambda: len(member.joins) == 2)
    assert member.left == member.joins[:1]
    await until(lambda: member.renewal._renewal is None)
    await member.expire(member.joins[1])
    await until(lambda: len(member.joins) == 3)


async def test_session_that_expires_during_its_join_fails_the_join() -> None:
    member = Member()
    member.during_join = [member.expire]
    await member.renewal.join(None)
    first, second = member.joins
    assert member.left == [first] and first is not second
    assert member.renewal._renewal is None, "the failed join was repeated; another task would join a second time"


async def test_expiry_of_an_earlier_session_starts_no_join() -> None:
    member = Member()
    member.during_join = [member.lose]
    earlier = await member.connect()
    member.renewal._leave = lambda _: asyncio.sleep(0)  # it stays open
    await member.renewal.join(earlier)
    await member.expire(earlier)
    assert member.renewal._renewal is None and len(member.joins) == 2


async def test_no_join_starts_or_continues_after_the_stop() -> None:
    member = Member()
    await member.renewal.join(None)
    blocked = asyncio.Event()
    member.during_join = [lambda _: blocked.wait()]  # type: ignore[list-item]
    await member.expire(member.joins[0])
    await until(lambda: len(member.joins) == 2)
    renewal = member.renewal._renewal
    assert renewal is not None
    member.renewal.stop()
    await asyncio.wait([renewal])
    assert renewal.cancelled() and member.left == member.joins and not member.reasons
    member = Member()
    await member.renewal.join(None)
    member.renewal.stop()
    await member.expire(member.joins[0])
    assert member.renewal._renewal is None and len(member.joins) == 1


async def test_node_whose_id_another_process_has_taken_gives_up() -> None:
    member = Member()
    await member.renewal.join(None)
    member.during_join = [member.meet_another]
    await member.expire(member.joins[0])
    await until(lambda: len(member.reasons) == 1)
    assert isinstance(member.reasons[0], DuplicateBroker) and member.left == member.joins


async def test_first_session_is_repeated_until_zookeeper_responds_unless_no_server_listens() -> None:
    member = Member()
    member.refusals = [ConnectionLoss(), SessionExpired()]
    session, cluster_id = await member.renewal.find_cluster(lambda: "fresh")
    assert cluster_id == "fresh"
    other, known = await member.renewal.find_cluster(lambda: "another")
    assert known == "fresh" and other is not session
    member.refusals = [NoServerListens()]
    with pytest.raises(NoServerListens):
        await member.renewal.find_cluster(lambda: "another")
