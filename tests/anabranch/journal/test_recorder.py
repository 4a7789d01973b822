"""Every request is recorded with its outcome, and stays unchanged."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from anabranch.broker.authorization.peer import Peer
from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.broker.dispatch.request_context import CloseConnection
from anabranch.faults.corruption import DamagedResponse, SilentResponse
from anabranch.journal.recorder import RecordingDispatcher
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.registry import BY_NAME
from tests.anabranch.faults.samples import PEER, SURROUNDINGS, Inner, armed, by_name


class Book:
    """Remembers what is written."""

    def __init__(self) -> None:
        self.written: list[tuple[str, Any]] = []

    def begin(self, request: DecodedRequest, peer: Peer, at: Any) -> Any:
        self.written.append(("begin", request.api.name))
        return object()

    def end(self, entry: Any, outcome: str, response: Any = None) -> None:
        self.written.append((outcome, response))


class Failing(Inner):
    """Raises the given exception."""

    error: BaseException

    async def answer(self, request: DecodedRequest, peer: Peer) -> Any:
        raise self.error


def recorder(inner: Inner) -> tuple[RecordingDispatcher, Book]:
    book = Book()
    return RecordingDispatcher(cast(Dispatcher, inner), book, SURROUNDINGS), book


async def test_response_is_passed_through() -> None:
    inner = Inner()
    made, book = recorder(inner)
    response = await made.answer(by_name("Heartbeat", 4), PEER)
    assert book.written == [("begin", "Heartbeat"), ("answered", response)]
    assert made.audiences is inner.audiences and made.inner is cast(Any, inner)


@pytest.mark.parametrize(
    ("error", "outcome", "response"),
    [
        (CloseConnection("x"), "closed", None),
        (asyncio.CancelledError(), "given up", None),
        (SilentResponse(armed()), "unanswered", None),
        (DamagedResponse([armed().rule], "an answer"), "answered", "an answer"),
    ],
)
async def test_exception_is_recorded_and_raised(error: BaseException, outcome: str, response: Any) -> None:
    inner = Failing()
    inner.error = error
    made, book = recorder(inner)
    with pytest.raises(type(error)):
        await made.answer(by_name("Heartbeat", 4), PEER)
    assert book.written == [("begin", "Heartbeat"), (outcome, response)]


async def test_request_answered_by_connection_is_not_recorded() -> None:
    made, book = recorder(Inner())
    await made.answer(DecodedRequest(BY_NAME["ApiVersions"], 0, 1, "app", None), PEER)
    assert book.written == []
