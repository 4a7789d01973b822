"""Election and fencing by /controller and /controller_epoch."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.controller.candidacy import Candidacy, NoLongerController, commit_fenced
from anabranch.controller.settings import ControllerSettings
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper
from anabranch.controller.zk.session import BadVersion, Create, NodeExists, Set


def candidate(session: MemorySession, node_id: int) -> Candidacy:
    return Candidacy(session, ControllerSettings(node_id=node_id, host="h", port=9), lambda: 0)


async def epoch(session: MemorySession) -> int:
    return znodes.decode_controller_epoch("", (await session.get(paths.CONTROLLER_EPOCH))[0])


async def test_first_controller_gets_epoch_1_and_publishes_its_address() -> None:
    zookeeper = MemoryZooKeeper()
    session = await zookeeper.connect()
    term = await candidate(session, 7).elect()
    assert term is not None and term.epoch == 1 == await epoch(session)
    body = znodes.decode_controller("", (await session.get(paths.CONTROLLER))[0])
    assert (body.broker_id, body.host, body.port) == (7, "h", 9)


async def test_one_candidate_wins_and_epoch_grows_with_each_election() -> None:
    zookeeper = MemoryZooKeeper()
    one, two = await zookeeper.connect(), await zookeeper.connect()
    first, second = candidate(one, 1), candidate(two, 2)
    terms = await asyncio.gather(first.elect(), second.elect())
    assert [term is None for term in terms] == [False, True]
    assert not await second.holds_office() and await first.holds_office()
    await one.close()
    term = await second.elect()
    assert term is not None and term.epoch == 2 == await epoch(two)


async def test_lost_reply_to_won_election_is_detected() -> None:
    zookeeper = MemoryZooKeeper()
    session = await zookeeper.connect()
    electing = asyncio.ensure_future(candidate(session, 1).elect())
    while await (await zookeeper.connect()).exists(paths.CONTROLLER) is None and not electing.done():
        session.lose_connection(carry_out=True)
        session.reconnect()
    term = await electing
    assert term is not None and term.epoch == await epoch(session)
    assert (await session.get(paths.CONTROLLER_EPOCH))[1].version == term.fence


async def test_write_of_ended_tenure_changes_nothing() -> None:
    zookeeper = MemoryZooKeeper()
    one, two = await zookeeper.connect(), await zookeeper.connect()
    old = await candidate(one, 1).elect()
    assert old is not None
    await one.delete(paths.CONTROLLER)
    new = await candidate(two, 2).elect()
    assert new is not None
    with pytest.raises(NoLongerController):
        await commit_fenced(one, old, [Create("/x", b"")])
    assert await two.exists("/x") is None
    assert await commit_fenced(two, new, [Create("/x", b"")]) == ["/x"]
    with pytest.raises(BadVersion):
        await commit_fenced(two, new, [Set("/x", b"", 5)])
    with pytest.raises(NodeExists):
        await commit_fenced(two, new, [Create("/x", b"")])


async def test_resign_removes_only_own_controller_znode() -> None:
    zookeeper = MemoryZooKeeper()
    one, two = await zookeeper.connect(), await zookeeper.connect()
    first, second = candidate(one, 1), candidate(two, 2)
    old = await first.elect()
    assert old is not None
    await first.resign(old)
    assert await second.elect() is not None
    await first.resign(old)
    assert await second.holds_office(), "a late resignation must not depose the successor"


async def test_cleanup_after_lost_election_reply_removes_no_other_controller() -> None:
    """Interrupted at any time, with unknown results; meanwhile another controller is elected."""

    async def unseated_after(turns: int) -> bool:
        zookeeper = MemoryZooKeeper()
        one, two = await zookeeper.connect(), await zookeeper.connect()
        first, second = candidate(one, 1), candidate(two, 2)
        assert await first.elect() is not None
        vacating = asyncio.ensure_future(first.vacate())
        for _ in range(turns):
            await asyncio.sleep(0)
        one.lose_connection(carry_out=True)
        won = await second.elect() is not None
        in_between = won and not vacating.done()
        one.reconnect()
        await vacating
        assert await second.holds_office() is won and not await first.holds_office()
        return in_between

    assert any([await unseated_after(turns) for turns in range(12)]), "an answer was lost, and another one won"
