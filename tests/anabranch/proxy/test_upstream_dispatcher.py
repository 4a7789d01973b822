"""The upstream gets the request as rules left it."""

from __future__ import annotations

import struct
from typing import Any

from anabranch.broker.authorization.peer import Peer
from anabranch.protocol.apis.fetch import FetchResponse
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.connection import decode_request
from anabranch.protocol.registry import BY_KEY
from anabranch.proxy.opaque_message import READABLE
from anabranch.proxy.upstream_dispatcher import UpstreamDispatcher, encode_request
from tests.anabranch.faults.samples import by_name
from tests.anabranch.proxy.test_fetch_sessions import fetch


def test_changed_request_keeps_correlation_id_and_client() -> None:
    request = by_name("Produce", 9)
    request.correlation_id, request.client_id = 4711, "shop"
    frame = b"".join(encode_request(request))
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    assert decode_request(frame[4:], READABLE) == request


class Way:
    def __init__(self) -> None:
        self.asked: list[DecodedRequest] = []

    async def ask(self, request: DecodedRequest) -> Any:
        self.asked.append(request)
        return FetchResponse(responses=[], session_id=5)


async def test_unseen_sessions_are_refused_only_while_their_partitions_are_needed() -> None:
    way, peer = Way(), Peer("h", 1)
    dispatcher = UpstreamDispatcher({("h", 1): way})
    unseen = DecodedRequest(BY_KEY[1], 12, 1, "c", fetch(3, session=5))
    assert (await dispatcher.answer(unseen, peer)).error_code == 0 and dispatcher.sessions.places(5) == []
    dispatcher.sessions.clear()
    dispatcher.asks_anew = True
    assert (await dispatcher.answer(unseen, peer)).error_code == 70 and len(way.asked) == 1
    await dispatcher.answer(DecodedRequest(BY_KEY[1], 12, 2, "c", fetch(0, 1, 2)), peer)
    assert (await dispatcher.answer(unseen, peer)).error_code == 0
    assert dispatcher.sessions.places(5) == [("t", 1), ("t", 2)]
