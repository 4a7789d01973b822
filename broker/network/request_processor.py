"""Processes the requests of one connection in order, from the received bytes to the responses of the `response_writer`.

Requests are processed one at a time and in order, as pipelined Produces require. A request that needs no wait is
answered at once. A request that waits stays in the `RequestPipeline`, and its future or the connection's task continues
it. While a Produce waits for replicas, the next Produce of the connection starts once the one before has appended.
Responses keep the order. (Kafka mutes the connection instead.)

Nothing is processed while a throttled client has to wait (`mute_ms`, KIP-219), nor while the peer does not read its
responses. Before the login, the `SaslAuthenticator` decides which requests are processed.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, Final, Protocol

from anabranch.broker.authorization.peer import UNKNOWN_PEER, Peer
from anabranch.broker.network.eager_coroutine import EagerCoroutine, start_eagerly
from anabranch.broker.network.request_pipeline import RequestPipeline
from anabranch.broker.network.response_writer import BATCHED_RESPONSE_BYTES_MAX
from anabranch.clients.receive_buffer import thread_receive_buffer
from anabranch.protocol.connection import NODE_SOFTWARE, ServerConnection

if TYPE_CHECKING:
    from anabranch.broker.authentication.listener_security import ListenerSecurity
    from anabranch.broker.authentication.sasl_authenticator import SaslAuthenticator
    from anabranch.broker.dispatch.dispatcher import Dispatcher
    from anabranch.broker.dispatch.version_ranges import VersionsByKey
    from anabranch.broker.network.response_writer import ResponseWriter
    from anabranch.broker.quotas.request_memory import MemoryHolder, RequestMemory
    from anabranch.broker.quotas.throttling import Throttling
    from anabranch.protocol.codec import DecodedRequest
    from anabranch.protocol.varint import Buffer

PRODUCE_KEY: Final = 0
REQUESTS_PER_STEP: Final = 64
"""The most requests of one connection that are processed without a yield to the event loop: one to four ms."""
NO_REQUEST: Final = -1


class RequestProcessorOwner(Protocol):
    """The part of the server that a request processor uses."""

    dispatcher: Dispatcher
    request_memory: RequestMemory
    frame_bytes_max: int
    entries_max: int
    """The maximal number of entries in the arrays of one request."""


class RequestProcessor:
    """The requests of one connection that are received and not yet answered."""

    __slots__ = (
        "_connection", "_server", "_writer", "authenticator", "core", "is_admitted", "is_draining", "is_lost",
        "mute_ms", "open_api_key", "peer", "pipeline",
    )  # fmt: skip

    def __init__(
        self,
        connection: MemoryHolder,
        server: RequestProcessorOwner,
        writer: ResponseWriter,
        sasl: ListenerSecurity | None,
    ) -> None:
        """`sasl`: the security of the listener, if it requires a login."""
        self._connection = connection
        self._server = server
        self._writer = writer
        self.peer = Peer(UNKNOWN_PEER.host)
        self.core = ServerConnection(
            server.dispatcher.audiences.others.accepted,
            server.frame_bytes_max,
            server.entries_max,
            self._on_client_software,
            thread_receive_buffer(),
        )
        self.pipeline = RequestPipeline()
        self.open_api_key = NO_REQUEST
        """The API key of the request that is processed."""
        self.mute_ms = 0
        """The throttle time that the client has to wait before its next request."""
        self.is_draining = False
        """Whether no further request may start."""
        self.is_lost = False
        """Whether the connection is lost: only Produces are still processed, since acks may be 0."""
        self.authenticator: SaslAuthenticator | None = None
        if sasl is not None:
            self.authenticator = sasl.make_authenticator(self, lambda: server.dispatcher)
        self.is_admitted = sasl is None
        """Whether the client has logged in, or need not."""

    def lose(self) -> None:
        """Note that the connection is lost."""
        self.is_lost = self.peer.connection.is_lost = True

    # --- called by the authenticator

    def on_login_required(self, frame_bytes_max: int) -> None:
        """Start or repeat authentication."""
        self.core.restrict(frame_bytes_max)

    def expect_tokens(self) -> None:
        """Treat frames as bare SASL tokens, as after SaslHandshake v0."""
        self.core.expect_tokens()

    def on_logged_in(self, principal: str, *, by_token: bool) -> None:
        """Record the principal of a successful login."""
        self.peer = dataclasses.replace(self.peer, principal=principal, by_token=by_token)
        self.is_admitted = True
        self.core.release(self._server.frame_bytes_max)

    def _on_client_software(self, software_name: str, software_version: str) -> VersionsByKey:
        """Record the client's software name; return the versions that are accepted from it."""
        self.peer = dataclasses.replace(self.peer, software_name=software_name, software_version=software_version)
        self._writer.sends_alone = software_name == NODE_SOFTWARE
        return self._server.dispatcher.audiences.accepted_for(software_name)

    # --- processing

    def answer_received(self) -> bool:
        """Process whole requests up to one that waits; return whether there is anything to wait for besides bytes.

        Other connections run after `REQUESTS_PER_STEP` of them: a client may send thousands at once.
        """
        core, writer, dispatcher = self.core, self._writer, self._server.dispatcher
        throttling = dispatcher.throttling
        left = REQUESTS_PER_STEP
        try:
            while not self.is_draining and (request := core.next_request()) is not None:
                if self.is_lost and request.api.key != PRODUCE_KEY:
                    return False
                self.open_api_key = request.api.key
                if self._connection.held_bytes:
                    self._server.request_memory.on_request_started(self._connection)
                gate = self.authenticator
                if gate is not None and (throttling is None or not throttling.active or not gate.is_authenticated):
                    response = start_eagerly(gate.answer(request, self.peer), self.start_next_produces)
                elif throttling is None or not throttling.active:
                    response = start_eagerly(dispatcher.answer(request, self.peer), self.start_next_produces)
                else:
                    response = start_eagerly(self._throttle(throttling, request))
                if type(response) is EagerCoroutine:
                    self.pipeline.append(response)
                    self.start_next_produces()
                    return True
                self._answer(response)
                if writer.size_bytes > BATCHED_RESPONSE_BYTES_MAX:
                    writer.send()
                left -= 1
                if self.mute_ms or writer.is_paused or not left:
                    return True
            return False
        finally:
            if writer.size_bytes:
                writer.send_with_others()

    def answer_pipelined(self) -> bool:
        """Answer the pipelined requests up to one that waits; return whether the next request may be processed."""
        pipeline = self.pipeline
        try:
            while pipeline:
                if not pipeline.step_first():
                    return False
                self._answer(pipeline.pop(0))
                self.start_next_produces()
        finally:
            if self._writer.size_bytes:
                self._writer.send()
        return not (self.is_draining or self.mute_ms or self._writer.is_paused)

    async def finish_pipelined(self) -> None:
        """Await the pipelined requests, and answer them."""
        pipeline, writer = self.pipeline, self._writer
        try:
            while pipeline:
                self._answer(await pipeline.finish_first(writer.send))
                self.start_next_produces()
        finally:
            writer.send()

    def start_next_produces(self) -> None:
        """Start the next Produces, as long as all before them only wait for replicas."""
        if self.open_api_key != PRODUCE_KEY or not self.core.buffered:
            return
        pipeline, server = self.pipeline, self._server
        throttling = server.dispatcher.throttling
        if throttling is not None and throttling.active:
            return
        while self.core.buffered and pipeline.accepts_next and not self.is_draining and not self._writer.is_paused:
            try:
                request = self.core.next_produce()
                if request is None:
                    return
                if self._connection.held_bytes:
                    server.request_memory.on_request_started(self._connection)
                answerer = self.authenticator or server.dispatcher
                pipeline.append(start_eagerly(answerer.answer(request, self.peer), self.start_next_produces))
            except (Exception, asyncio.CancelledError) as error:
                pipeline.append(error)

    async def _throttle(self, throttling: Throttling, request: DecodedRequest) -> Any:
        answerer = self.authenticator or self._server.dispatcher
        response, self.mute_ms = await throttling.answer(request, answerer.answer(request, self.peer), self.peer.user)
        return response

    def _answer(self, response: Any) -> None:
        """Close the open request, and queue its response for the next write."""
        self.open_api_key = PRODUCE_KEY if self.pipeline else NO_REQUEST
        self._writer.add(self.core.answer(response))
        if self._connection.held_bytes:
            self._server.request_memory.account(self._connection, self.core.held_bytes)

    def encode_response(self, response: Any) -> list[Buffer]:
        """Encode the response to the open request, and close the request."""
        self.open_api_key = PRODUCE_KEY if self.pipeline else NO_REQUEST
        chunks = self.core.answer(response)
        if self._connection.held_bytes:
            self._server.request_memory.account(self._connection, self.core.held_bytes)
        return chunks
