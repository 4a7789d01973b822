"""A dispatcher that records a node's exchanges. It is the outermost one, and therefore records the effects of rules."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.broker.dispatch.request_context import CloseConnection
from anabranch.broker.network.response_override import ResponseOverride

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer
    from anabranch.faults.matching import NodeContext
    from anabranch.journal.entry import JournalEntry
    from anabranch.protocol.codec import DecodedRequest


class JournalPort(Protocol):
    """The interface of the journal for recorders."""

    def begin(self, request: DecodedRequest, peer: Peer, at: NodeContext) -> JournalEntry:
        """Open an exchange."""

    def end(self, entry: JournalEntry, outcome: str, response: Any = None) -> None:
        """Complete an exchange."""


class RecordingDispatcher(Dispatcher):
    """Records requests and their outcomes."""

    outermost = True

    def __init__(self, inner: Dispatcher, book: JournalPort, at: NodeContext) -> None:
        self.inner = inner
        self.audiences = inner.audiences
        self.requests = inner.requests
        self.throttling = inner.throttling
        self.long_polls = inner.long_polls
        self._book = book
        self._at = at

    async def answer(self, request: DecodedRequest, peer: Peer) -> Any:
        """See Dispatcher."""
        if request.body is None:
            return await self.inner.answer(request, peer)
        book = self._book
        entry = book.begin(request, peer, self._at)
        try:
            response = await self.inner.answer(request, peer)
        except ResponseOverride as interference:
            response = interference.response
            book.end(entry, "unanswered" if response is None else "answered", response)
            raise
        except CloseConnection:
            book.end(entry, "closed")
            raise
        except asyncio.CancelledError:
            book.end(entry, "given up")
            raise
        book.end(entry, "unanswered" if response is None else "answered", response)
        return response
