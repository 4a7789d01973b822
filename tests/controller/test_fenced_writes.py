"""Every controller write has a named step, and none succeeds after the tenure."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.controller.candidacy import Candidacy, NoLongerController
from anabranch.controller.fenced_writes import FencedWrites
from anabranch.controller.settings import ControllerSettings
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper
from anabranch.controller.zk.session import BadVersion, Create, Set
from anabranch.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.controller.cluster import TestCluster


async def office() -> tuple[MemorySession, FencedWrites, list[str]]:
    session = await MemoryZooKeeper().connect()
    term = await Candidacy(session, ControllerSettings(node_id=1), lambda: 0).elect()
    assert term is not None
    steps: list[str] = []
    return session, FencedWrites(session, term, steps.append), steps


async def test_write_is_a_named_step_and_unknown_step_is_not_written() -> None:
    session, writes, steps = await office()
    assert await writes.commit("isr:2", [Create("/x", b"")]) == ["/x"]
    with pytest.raises(KeyError):
        await writes.commit("some write", [Create("/y", b"")])
    with pytest.raises(KeyError):
        writes.taken("some write")
    assert await session.exists("/y") is None
    with pytest.raises(BadVersion):
        await writes.commit("isr", [Set("/x", b"", 7)])
    assert steps == ["isr:2"], "what was refused is no step that was taken"


async def test_step_listener_is_optional() -> None:
    session, _, _ = await office()
    candidacy = Candidacy(session, ControllerSettings(node_id=1), lambda: 0)
    await candidacy.vacate()
    term = await candidacy.elect()
    assert term is not None
    assert await FencedWrites(session, term, None).commit("isr", [Create("/x", b"")]) == ["/x"]


async def test_ended_tenure_writes_nothing() -> None:
    session, writes, steps = await office()
    await session.set(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(9))
    with pytest.raises(NoLongerController):
        await writes.commit("isr", [Create("/x", b"")])
    assert await session.exists("/x") is None and steps == []


async def test_ended_controller_allocates_no_producer_ids() -> None:
    cluster = await TestCluster.start(1)
    controller = cluster.controller
    assert controller.state is not None
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=controller.state.brokers[1].epoch)
    assert (await controller.allocate_producer_ids(request)).last == 999
    assert (await controller.allocate_producer_ids(request)).last == 1999
    await cluster.client.set(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(9))
    with pytest.raises(KafkaError) as refused:
        await controller.allocate_producer_ids(request)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    data, stat = await cluster.client.get(paths.LATEST_PRODUCER_ID_BLOCK)
    block = znodes.decode_producer_id_block(paths.LATEST_PRODUCER_ID_BLOCK, data)
    assert block is not None and block.last == 1999 and stat.version == 1
    await cluster.stop()


async def test_controller_without_zookeeper_answers_not_controller() -> None:
    """Its session has ended unnoticed: UNKNOWN_SERVER_ERROR would look like a bug."""
    cluster = await TestCluster.start(1)
    controller = cluster.controller
    assert controller.state is not None
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=controller.state.brokers[1].epoch)
    pending = asyncio.ensure_future(controller.allocate_producer_ids(request))
    cluster.zookeeper.expire(controller.session_under_test)  # type: ignore[attr-defined]
    with pytest.raises(KafkaError, match="ZooKeeper cannot be reached") as refused:
        await pending
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    await cluster.stop()
