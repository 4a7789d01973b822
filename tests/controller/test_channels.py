"""The queue to a broker: in order, retried, and never to another incarnation."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.controller.channels import ControllerChannelManager
from anabranch.controller.events import ResponseReceived
from anabranch.controller.model import Broker, Endpoint
from anabranch.controller.settings import ControllerSettings
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest
from tests.controller.fake_broker import FakeBroker

SETTINGS = ControllerSettings(node_id=5, retry_backoff_ms=1, request_timeout_ms=200)


def message(number: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_id=number, controller_epoch=1, broker_epoch=10**9, live_brokers=[])


async def test_requests_arrive_in_order_through_broken_connections_and_timeouts() -> None:
    broker = await FakeBroker(1, await MemoryZooKeeper().connect()).start()
    answers: asyncio.Queue[ResponseReceived] = asyncio.Queue()
    channels = ControllerChannelManager(SETTINGS, answers.put_nowait)
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", broker.port)
    channels.open(Broker(1, broker.epoch, (endpoint,)))
    for number in range(6):
        if number == 2:
            for writer in list(broker._writers):
                writer.transport.abort()
        if number == 4:
            broker.answering.clear()
            asyncio.get_running_loop().call_later(0.3, broker.answering.set)
        channels.send(1, broker.epoch, message(number))
        async with asyncio.timeout(60):
            answer = await answers.get()
        assert (answer.broker_id, answer.broker_epoch) == (1, broker.epoch)
        assert answer.request.controller_id == number
    order = [request.controller_id for request in broker.requests]
    assert sorted(set(order)) == list(range(6)) and order == sorted(order)
    await channels.close_all()
    await broker.stop()


async def test_request_for_earlier_broker_epoch_is_dropped() -> None:
    broker = await FakeBroker(1, await MemoryZooKeeper().connect()).start()
    answers: asyncio.Queue[Any] = asyncio.Queue()
    channels = ControllerChannelManager(SETTINGS, answers.put_nowait)
    channels.open(Broker(1, 50, (Endpoint("PLAINTEXT", "127.0.0.1", broker.port),)))
    channels.send(1, 49, message(1))
    channels.send(2, 50, message(2))
    channels.send(1, 50, message(3))
    async with asyncio.timeout(60):
        assert (await answers.get()).request.controller_id == 3
    await channels.close_all()
    await broker.stop()


async def test_close_drops_requests_to_unreachable_broker() -> None:
    answers: asyncio.Queue[Any] = asyncio.Queue()
    channels = ControllerChannelManager(SETTINGS, answers.put_nowait)
    channels.open(Broker(1, 1, (Endpoint("PLAINTEXT", "127.0.0.1", 1),)))
    channels.open(Broker(2, 1, ()))
    channels.send(1, 1, message(1))
    channels.send(2, 1, message(1))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await channels.close_all()
    assert answers.empty()
