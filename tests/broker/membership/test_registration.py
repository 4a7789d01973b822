"""Registration, cluster id, producer id blocks and topic configurations, against the in-memory ZooKeeper."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import sys

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.membership import registration
from anabranch.broker.membership.producer_ids import ProducerIds
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.serving import claims
from tests.sim.loop import SimLoop

SETTINGS = BrokerSettings(node_id=3, host="0.0.0.0", port=9093, advertised_host="broker-3", rack="r1")


async def test_the_broker_epoch_is_the_czxid_and_grows_with_every_registration() -> None:
    zookeeper = MemoryZooKeeper()
    session = await zookeeper.connect()
    await registration.prepare_parents(session)
    await registration.prepare_parents(session)
    first = await registration.register(session, SETTINGS, 5)
    data, stat = await session.get("/brokers/ids/3")
    assert (stat.czxid, stat.ephemeral_owner) == (first, session.session_id)
    broker = znodes.decode_broker("/brokers/ids/3", data, czxid=first)
    assert (broker.rack, broker.endpoints[0].host, broker.endpoints[0].port) == ("r1", "broker-3", 9093)
    await session.close()
    again = await zookeeper.connect()
    assert await registration.register(again, SETTINGS, 6) > first


async def test_restarted_broker_waits_for_its_old_registration_to_end() -> None:
    zookeeper = MemoryZooKeeper()
    killed, session = await zookeeper.connect(), await zookeeper.connect()
    await registration.prepare_parents(killed)
    old = await registration.register(killed, SETTINGS, 5)
    registering = asyncio.ensure_future(registration.register(session, SETTINGS, 6))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not registering.done()
    zookeeper.expire(killed)
    assert await registering > old


IMPATIENT = dataclasses.replace(SETTINGS, zookeeper_session_timeout_ms=-650)
"""It waits 25 ms for an earlier session of its own length."""


async def test_broker_id_of_a_reachable_other_node_is_refused() -> None:
    zookeeper = MemoryZooKeeper()
    other, session = await zookeeper.connect(), await zookeeper.connect()
    await registration.prepare_parents(other)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server, asyncio.timeout(30):
        port = server.sockets[0].getsockname()[1]
        await registration.register(other, dataclasses.replace(SETTINGS, advertised_host="127.0.0.1", port=port), 5)
        with pytest.raises(registration.DuplicateBroker, match="broker id 3 is in use"):
            await registration.register(session, IMPATIENT, 6)


def test_timer_that_fires_early_is_followed_by_a_pause() -> None:
    """Otherwise the node spins until its clock has moved on, and logs each turn."""
    for number in range(40):
        loop = SimLoop(random.Random(number))
        loop.hasty = True

        async def outwait(began_s: float = number * 14 / 13) -> None:
            zookeeper = MemoryZooKeeper()
            await asyncio.sleep(began_s)
            killed, session = await zookeeper.connect(), await zookeeper.connect()
            await registration.prepare_parents(killed)
            await registration.register(killed, SETTINGS, 5)
            registering = asyncio.ensure_future(registration.register(session, SETTINGS, 6))
            await asyncio.sleep(60)
            zookeeper.expire(killed)
            await registering

        loop.run(outwait())
        assert loop.failures == []


@pytest.mark.parametrize("host", ["127.0.0.1", "a..b"])
async def test_registration_waits_for_a_longer_earlier_session(
    host: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(registration, "REPORT_EVERY_S", 0.01)
    zookeeper = MemoryZooKeeper()
    killed, session = await zookeeper.connect(), await zookeeper.connect()
    await registration.prepare_parents(killed)
    old = await registration.register(killed, dataclasses.replace(SETTINGS, advertised_host=host, port=1), 5)
    registering = asyncio.ensure_future(registration.register(session, IMPATIENT, 6))
    async with asyncio.timeout(30):
        while caplog.text.count("waiting for it to end") < 10 and not registering.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # a log line sets no event
    assert not registering.done()
    zookeeper.expire(killed)
    assert await registering > old


async def test_registration_is_refused_when_the_earlier_session_outlasts_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The registered address is this node's, so only the time limit ends the wait."""
    monkeypatch.setattr(registration, "EARLIER_SESSION_LIMIT_S", 0.1)
    zookeeper = MemoryZooKeeper()
    other, session = await zookeeper.connect(), await zookeeper.connect()
    await registration.prepare_parents(other)
    await registration.register(other, SETTINGS, 5)
    async with asyncio.timeout(30):
        with pytest.raises(registration.DuplicateBroker, match="broker id 3 is in use"):
            await registration.register(session, IMPATIENT, 6)


KILLED = """\
import asyncio, os, sys
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.membership import registration
from anabranch.controller.zk.kazoo_session import open_kazoo

async def main():
    session = await open_kazoo(sys.argv[1], session_timeout_ms=6000)
    await registration.prepare_parents(session)
    print(await registration.register(session, BrokerSettings(node_id=3, port=9093), 5), flush=True)
    os._exit(0)

asyncio.run(main())
"""


@pytest.mark.zookeeper
async def test_node_restarted_with_a_shorter_session_timeout_registers(
    zookeeper_hosts: str,
) -> None:
    killed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, zookeeper_hosts), stdout=asyncio.subprocess.PIPE
    )
    old, _ = await killed.communicate()
    session = await open_kazoo(zookeeper_hosts)
    try:
        assert await session.exists(paths.broker(3)) is not None, "the killed session lives on"
        async with asyncio.timeout(100):
            assert await registration.register(session, IMPATIENT, 6) > int(old)
    finally:
        await session.close()


async def test_all_brokers_agree_on_the_cluster_id() -> None:
    session = await MemoryZooKeeper().connect()
    got = await asyncio.gather(*(registration.cluster_id(session, f"fresh-{n}") for n in range(5)))
    assert len(set(got)) == 1


async def test_producer_ids_are_unique() -> None:
    zookeeper = MemoryZooKeeper()
    session = await zookeeper.connect()
    await registration.prepare_parents(session)
    brokers = [ProducerIds(claims(session, broker)) for broker in (1, 2, 3)]
    drawn = await asyncio.gather(*(broker.draw() for broker in brokers for _ in range(1500)))
    assert len(set(drawn)) == 4500
    data, _ = await session.get(paths.LATEST_PRODUCER_ID_BLOCK)
    block = znodes.decode_producer_id_block(paths.LATEST_PRODUCER_ID_BLOCK, data)
    assert block is not None
    assert (block.first, block.last) == (5000, 5999)


async def test_lost_session_prevents_new_producer_id_blocks() -> None:
    session = await MemoryZooKeeper().connect()
    ids = ProducerIds(claims(session, 1))
    assert await ids.draw() == 0
    await session.close()
    assert [await ids.draw() for _ in range(999)] == list(range(1, 1000))
    with pytest.raises(KafkaError) as caught:
        await ids.draw()
    assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
