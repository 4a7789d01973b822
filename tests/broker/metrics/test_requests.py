"""Request durations include waits, and measuring changes no response."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from anabranch.broker.authorization.peer import UNKNOWN_PEER, Peer
from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.broker.dispatch.request_context import CloseConnection
from anabranch.broker.metrics.requests import CLIENTS_MAX, OTHERS, MeasuringDispatcher, RequestFigures
from anabranch.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.registry import BY_NAME

HEARTBEAT = BY_NAME["Heartbeat"]
BODY = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def request(client: str | None = "app") -> DecodedRequest:
    return DecodedRequest(HEARTBEAT, 4, 1, client, BODY)


class Measured:
    """A dispatcher whose requests take given times."""

    audiences = requests = cast(Any, {})
    throttling = None
    long_polls = frozenset[int]()

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits: asyncio.Future[None] | None = None
        self.answered: Any = HeartbeatResponse(error_code=0)

    async def answer(self, request: DecodedRequest, peer: Peer) -> Any:
        self.now_s += 0.5
        if self.waits is not None:
            await self.waits
        if isinstance(self.answered, Exception):
            raise self.answered
        return self.answered


def measuring() -> tuple[Measured, RequestFigures, MeasuringDispatcher]:
    measured, figures = Measured(), RequestFigures()
    return measured, figures, MeasuringDispatcher(cast(Dispatcher, measured), figures, lambda: measured.now_s)


async def test_work_time_and_wait_time_are_measured_separately() -> None:
    measured, figures, dispatcher = measuring()
    assert await dispatcher.answer(request(), UNKNOWN_PEER) is measured.answered
    measured.waits = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(dispatcher.answer(request(), UNKNOWN_PEER))
    await asyncio.sleep(0)
    measured.now_s += 3.0
    measured.waits.set_result(None)
    assert await waiting is measured.answered
    assert (figures.work_s[HEARTBEAT.key].count, figures.work_s[HEARTBEAT.key].sum) == (2, 1.0)
    assert (figures.total_s[HEARTBEAT.key].count, figures.total_s[HEARTBEAT.key].sum) == (2, 4.0)
    assert figures.clients == {"app": 2}
    assert not figures.errors


async def test_errors_are_counted_and_closed_connections_are_not_measured() -> None:
    measured, figures, dispatcher = measuring()
    measured.answered = HeartbeatResponse(error_code=27)
    await dispatcher.answer(request(), UNKNOWN_PEER)
    await dispatcher.answer(request(None), UNKNOWN_PEER)
    assert figures.errors == {(HEARTBEAT.key, 27): 2}
    measured.answered = None  # as for acks=0
    assert await dispatcher.answer(request(), UNKNOWN_PEER) is None
    measured.answered = CloseConnection("enough")
    with pytest.raises(CloseConnection):
        await dispatcher.answer(request(), UNKNOWN_PEER)
    assert figures.total_s[HEARTBEAT.key].count == 3


async def test_cancelled_request_cancels_its_pending_operation() -> None:
    measured, figures, dispatcher = measuring()
    measured.waits = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(dispatcher.answer(request(), UNKNOWN_PEER))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert measured.waits.cancelled()
    assert not figures.total_s


async def test_number_of_measured_client_ids_is_bounded() -> None:
    _, figures, dispatcher = measuring()
    for number in range(CLIENTS_MAX + 50):
        await dispatcher.answer(request(f"client-{number}"), UNKNOWN_PEER)
    await dispatcher.answer(request("client-3"), UNKNOWN_PEER)
    assert len(figures.clients) == CLIENTS_MAX + 1
    assert (figures.clients[OTHERS], figures.clients["client-3"]) == (50, 2)
