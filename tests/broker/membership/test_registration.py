"""Registration, cluster id, producer id blocks and topic configurations, against the in-memory ZooKeeper."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.membership import registration
from anabranch.broker.membership.producer_ids import ProducerIds
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.serving import claims

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


async def test_a_restarted_broker_waits_for_its_old_registration_to_vanish() -> None:
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


async def test_an_id_that_stays_in_use_is_refused() -> None:
    zookeeper = MemoryZooKeeper()
    other, session = await zookeeper.connect(), await zookeeper.connect()
    await registration.prepare_parents(other)
    await registration.register(other, SETTINGS, 5)
    impatient = dataclasses.replace(SETTINGS, zookeeper_session_timeout_ms=-650)
    with pytest.raises(registration.DuplicateBroker, match="broker id 3 is in use"):
        await registration.register(session, impatient, 6)


async def test_all_brokers_agree_on_the_cluster_id() -> None:
    session = await MemoryZooKeeper().connect()
    got = await asyncio.gather(*(registration.cluster_id(session, f"fresh-{n}") for n in range(5)))
    assert len(set(got)) == 1


async def test_producer_ids_are_never_given_twice() -> None:
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


async def test_without_zookeeper_there_are_no_new_producer_ids() -> None:
    session = await MemoryZooKeeper().connect()
    ids = ProducerIds(claims(session, 1))
    assert await ids.draw() == 0
    await session.close()
    assert [await ids.draw() for _ in range(999)] == list(range(1, 1000))
    with pytest.raises(KafkaError) as caught:
        await ids.draw()
    assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
