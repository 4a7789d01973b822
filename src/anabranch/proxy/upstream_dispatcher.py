"""The dispatcher of a broker that is elsewhere: it asks that broker, over the connection of the client who asks.

What rules have not changed is sent as the bytes that came. An answer that nobody has changed leaves as the bytes that
came, too: `answer` returns what it read, and the connection knows what that was read from.
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
"""Which versions are served is the upstream's business."""


class UpstreamPort(Protocol):
    """The connection over which somebody asks."""

    async def ask(self, request: DecodedRequest) -> Any:
        """What the broker answers, read; None if it gives no answer. Raises CloseConnection."""


class UpstreamDispatcher(Dispatcher):
    """Asks one broker."""

    def __init__(self, ways: dict[tuple[str, int], UpstreamPort]) -> None:
        """`ways`: host and port of who asks -> the connection."""
        self._ways = ways
        self.audiences = NO_CLIENT
        self.requests = {}
        self.throttling = None
        self.long_polls = frozenset()
        self.sessions = FetchSessions()
        self.asks_anew = False
        """Whether a session that began unseen is refused: a rule is about topics, and nobody knows what it is about."""

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
            self.sessions.asked(body, answer.session_id)
        return answer


def encode_request(request: DecodedRequest) -> list[Buffer]:
    """A request that a rule has changed, as a frame."""
    _, chunks = ClientConnection(request.client_id).request(request.body, request.version)
    head = bytearray(chunks[0])
    struct.pack_into(">i", head, CORRELATION_ID_AT, request.correlation_id)
    return [bytes(head), *chunks[1:]]
