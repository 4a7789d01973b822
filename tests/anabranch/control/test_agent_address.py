"""Agents are found by ephemeral znodes that name the newest process of each node."""

from __future__ import annotations

import logging

import pytest

from anabranch.control.agent_address import AgentAddress, decode, encode, read_addresses, register
from anabranch.controller.zk.body import MalformedZnode
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.controller.zk.session import NoAuth

ONE = AgentAddress(1, "http://127.0.0.1:9190", 4711, "box", "pid:[4026531836]")


def test_decode_returns_what_was_encoded() -> None:
    assert decode("/anabranch/control/1", encode(ONE)) == ONE


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/anabranch/control/x", encode(ONE)),
        ("/anabranch/control/1", b"{}"),
        ("/anabranch/control/1", b"no json"),
        ("/anabranch/control/1", b'{"url": "http://h", "pid": "1", "host": "h"}'),
    ],
)
def test_malformed_znode_is_an_error_that_names_it(path: str, data: bytes) -> None:
    with pytest.raises(MalformedZnode, match=path):
        decode(path, data)


async def test_registration_replaces_that_of_an_earlier_process_and_outlives_its_session() -> None:
    zookeeper = MemoryZooKeeper()
    earlier, later = await zookeeper.connect(), await zookeeper.connect()
    await register(earlier, ONE)
    newer = AgentAddress(1, "http://127.0.0.1:9191", 4712, "box")
    await register(later, newer)
    zookeeper.expire(earlier)
    assert await read_addresses(later) == [newer]
    await later.close()
    assert await read_addresses(await zookeeper.connect()) == []


async def test_registered_agents_are_sorted_and_malformed_ones_reported(caplog: pytest.LogCaptureFixture) -> None:
    session = await MemoryZooKeeper().connect()
    assert await read_addresses(session) == []
    for node_id in (100, 2, 1):
        await register(session, AgentAddress(node_id, "http://h:1", node_id, "h"))
    await session.create("/anabranch/control/7", b"broken")
    with caplog.at_level(logging.WARNING):
        assert [one.node_id for one in await read_addresses(session)] == [1, 2, 100]
    assert "/anabranch/control/7: not JSON" in caplog.text


async def test_znode_of_another_login_is_a_warning_and_the_node_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = await MemoryZooKeeper().connect()

    async def refuse(path: str, *args: object, **options: object) -> str:
        raise NoAuth(path)

    monkeypatch.setattr(session, "create", refuse)
    with caplog.at_level(logging.WARNING):
        await register(session, ONE)
    assert "no front will find the control agent of node 1" in caplog.text
