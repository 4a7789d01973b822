"""The dispatcher of an upstream broker: sends requests over the requesting client's own upstream connection.

A request that no rule has changed is sent as its received bytes. So is a response: `answer` returns the decoded
response, and the connection keeps the bytes that it came from.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, Protocol

from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.faults.matching import FETCH
from anabranch.faults.rewriting import empty_answer
from anabranch.protocol.connection import ClientConnection
from anabranch.protocol.errors import ErrorCode
from anabranch.proxy.fetch_sessions import FetchSessions
from anabranch.proxy.opaque_message import OpaqueApi

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer
    from anabranch.protocol.codec import DecodedRequest
    from anabranch.protocol.varint import Buffer

CORRELATION_ID_AT: Final = 8
NO_CLIENT: Final[Any] = None
"""The upstream decides which versions it serves."""


class UpstreamPort(Protocol):
    """The upstream connection of a client."""

    async def ask(self, request: DecodedRequest) -> Any:
        """The broker's decoded response; None if it sends none. Raises CloseConnection."""


class UpstreamDispatcher(Dispatcher):
    """Sends requests to one broker."""

    def __init__(self, ways: dict[tuple[str, int], UpstreamPort]) -> None:
        """`ways`: the client's host and port -> its upstream connection."""
        self._ways = ways
        self.audiences = NO_CLIENT
        self.requests = {}
        self.throttling = None
        self.long_polls = frozenset()
        self.sessions = FetchSessions()
        self.asks_anew = False
        """Whether to refuse fetch sessions that began undecoded: a rule needs their partitions."""

    async def answer(self, request: DecodedRequest, peer: Peer) -> Any:
        """See Dispatcher."""
        way = self._ways[peer.host, peer.port]
        body = request.body
        reads_sessions = request.api.key == FETCH and not isinstance(request.api, OpaqueApi)
        if reads_sessions and self.asks_anew and not self.sessions.knows(body):
            answer = empty_answer(request.api)
            answer.error_code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            return answer
        answer = await way.ask(request)
        if reads_sessions and answer is not None and not answer.error_code:
            self.sessions.on_request(body, answer.session_id)
        return answer


def encode_request(request: DecodedRequest) -> list[Buffer]:
    """Encode a request that a rule has changed, as a frame."""
    _, chunks = ClientConnection(request.client_id).request(request.body, request.version)
    head = bytearray(chunks[0])
    struct.pack_into(">i", head, CORRELATION_ID_AT, request.correlation_id)
    return [bytes(head), *chunks[1:]]
