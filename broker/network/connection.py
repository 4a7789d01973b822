"""Reads requests from a socket, passes them to the dispatcher, and the responses to the `response_writer`.

Requests of a connection are processed one at a time and in order, as pipelined Produces require. A request that needs
no wait is answered in the callback that received its bytes. A request that waits continues in the callback of its
future (`eager_coroutine`). One long-lived task per connection does the rest: it waits for quotas and for the peer, and
yields to the event loop. No task is created per request. While a Produce waits for replicas, the next Produce of the
connection starts once the one before has appended. Responses keep the order. (Kafka mutes the connection instead.)

Back-pressure works in both directions. Reading pauses while too many bytes wait to be processed, on this connection or
on all (`request_memory`). The next request waits while earlier responses pile up in the socket.

A DecodeError closes the connection with one log line; it does not affect other connections.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from anabranch.broker.authorization.peer import UNKNOWN_PEER, Peer
from anabranch.broker.dispatch.request_context import AuthenticationFailed, CloseConnection
from anabranch.broker.network.eager_coroutine import EagerCoroutine, start_eagerly
from anabranch.broker.network.request_pipeline import RequestPipeline
from anabranch.broker.network.response_override import ResponseOverride
from anabranch.broker.network.response_writer import (
    BATCHED_RESPONSE_BYTES_MAX,
    ResponseWriter,
    ResponseWriterOwner,
)
from anabranch.broker.quotas.request_memory import FREE_BYTES
from anabranch.clients.receive_buffer import thread_receive_buffer
from anabranch.protocol.connection import NODE_SOFTWARE, ServerConnection
from anabranch.protocol.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.broker.authentication.listener_security import ListenerSecurity
    from anabranch.broker.authentication.sasl_authenticator import SaslAuthenticator
    from anabranch.broker.config.listeners import Listener
    from anabranch.broker.dispatch.dispatcher import Dispatcher
    from anabranch.broker.dispatch.version_ranges import VersionsByKey
    from anabranch.broker.quotas.request_memory import RequestMemory
    from anabranch.broker.quotas.throttling import Throttling
    from anabranch.protocol.codec import DecodedRequest
    from anabranch.protocol.varint import Buffer

log: Final = logging.getLogger(__name__)

PRODUCE_KEY: Final = 0


class ConnectionOwner(ResponseWriterOwner, Protocol):
    """The part of the server that a connection uses."""

    dispatcher: Dispatcher
    loop: asyncio.AbstractEventLoop
    request_memory: RequestMemory
    frame_bytes_max: int
    entries_max: int
    """The maximal number of entries in the arrays of one request."""
    buffered_bytes_max: int
    received_bytes: int

    def admit(self, connection: BrokerConnection) -> bool:
        """Register a new connection; return False to refuse it."""

    def remove_connection(self, connection: BrokerConnection) -> None:
        """Unregister a connection that has ended."""


class BrokerConnection(asyncio.BufferedProtocol):
    """One accepted connection."""

    def __init__(self, server: ConnectionOwner, listener: Listener, protection: ListenerSecurity | None = None) -> None:
        self._server = server
        self._listener = listener
        self._protection = protection
        self._authenticator: SaslAuthenticator | None = None
        audiences = server.dispatcher.audiences
        self._core = ServerConnection(
            audiences.others.accepted,
            server.frame_bytes_max,
            server.entries_max,
            self._on_client_software,
            thread_receive_buffer(),
        )
        if protection is not None and listener.sasl:
            self._authenticator = protection.make_authenticator(self, lambda: server.dispatcher)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._context = contextvars.copy_context()
        self._arrived: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._muted: asyncio.Future[None] | None = None
        self._pipeline = RequestPipeline()
        self._mute_ms = 0
        self._writer = ResponseWriter(self, server)
        self._read_paused = False
        self._draining = False
        self._open_api_key = -1
        self.peer = UNKNOWN_PEER
        self.last_active_s = 0.0
        self.opened_s = 0.0
        self._admitted = self._authenticator is None
        self.held_bytes = 0
        """The bytes that `RequestMemory` counts for this connection."""
        self.held_response_bytes = 0
        """The bytes that `ResponseMemory` counts for this connection."""

    # --- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the server to admit this connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._writer.use(self._transport)
        address = transport.get_extra_info("peername")
        if address:
            listener = self._listener
            self.peer = Peer(address[0], address[1], listener=listener.name, protocol=listener.protocol)
        self.last_active_s = self.opened_s = self._server.loop.time()
        if self._listener.tls:
            self._transport.pause_reading()  # the next bytes belong to TLS, which begins when the connection is served
        if not self._server.admit(self):
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the core's buffer, into which the socket's next bytes go."""
        return self._core.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Process the received bytes, or leave them to the serving task; stop reading when that cannot keep up."""
        core = self._core
        held_bytes = core.buffer_updated(nbytes) + core.unanswered_bytes
        server = self._server
        server.received_bytes += nbytes
        if held_bytes > FREE_BYTES or self.held_bytes:
            server.request_memory.account(self, held_bytes)
        self.last_active_s = server.loop.time()
        if self._arrived is not None and not self._arrived.done() and not self._pipeline:
            self._process_or_wake(self._arrived, self._answer_at_once)
            return
        if self._pipeline and asyncio.current_task(server.loop) is None:
            self._start_next_as_task()
        if core.buffered > server.buffered_bytes_max or (self.held_bytes and server.request_memory.full):
            self._pause_reading()

    def pause_writing(self) -> None:
        """Stop processing requests: the peer does not read its responses fast enough."""
        self._writer.pause()

    def resume_writing(self) -> None:
        """Continue: the peer has read enough of the transport's buffer."""
        self._writer.resume()
        if not self._writer.is_paused and self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop serving once the present request and every Produce behind it are processed, since acks may be 0.

        A request that only waits and reads is cancelled at once. Requests that have not started are dropped: the client
        may have repeated them elsewhere, and a commit processed after its successor would undo it.
        """
        self._transport = None
        self._writer.drop()
        if self._task is None:
            self._server.remove_connection(self)
        elif self._open_api_key in self._server.dispatcher.long_polls:
            self._task.cancel()
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
        self.resume_writing()
        self._unmute()

    # --- called by the server

    def serve(self) -> None:
        """Begin to process requests, including those that already wait in the buffer."""
        if self._transport is not None and not self._transport.is_closing():
            self._task = self._server.loop.create_task(self._serve(), context=self._context)

    @property
    def listener_name(self) -> str:
        """The name of the listener that accepted it."""
        return self._listener.name

    @property
    def busy(self) -> bool:
        """Whether a request is being processed."""
        return self._open_api_key != -1

    def close(self) -> None:
        """Close the connection once all responses are sent."""
        self._writer.close()

    @property
    def unsent_bytes(self) -> int:
        """Return how many bytes of responses the peer has not read."""
        return self._writer.unsent_bytes

    @property
    def missing_bytes(self) -> int:
        """Return how many bytes of the next request are missing."""
        return self._core.missing

    def resume_reading(self) -> None:
        """Resume reading from the socket."""
        if self._read_paused and self._transport is not None:
            self._read_paused = False
            self._transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self._read_paused and self._transport is not None:
            self._read_paused = True
            self._transport.pause_reading()

    def drain(self) -> asyncio.Task[None] | None:
        """Finish the present request, then close. Returns the task to wait for, if any."""
        self._draining = True
        self._unmute()
        if not self.busy:
            self.close()
        return self._task

    async def stop(self) -> None:
        """Close the connection at once, and wait for the serving task."""
        if self._transport is not None:
            self._transport.abort()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # --- called by a response override: see `ConnectionHandle`

    def encode_response(self, response: Any) -> list[Buffer]:
        """Encode the response to the open request, and close the request."""
        self._open_api_key = PRODUCE_KEY if self._pipeline else -1
        chunks = self._core.answer(response)
        if self.held_bytes:
            self._server.request_memory.account(self, self._core.held_bytes)
        return chunks

    def send(self, chunks: list[Buffer]) -> None:
        """Write bytes to the peer."""
        self._writer.add(chunks)
        self._writer.send()

    async def wait(self, wait_ms: int) -> bool:
        """Wait for this time or until the connection is to end; return whether to continue."""
        self._mute_ms = wait_ms
        await self._wait_while_muted()
        return self._transport is not None and not self._draining

    def stop_reading(self) -> None:
        """Stop reading."""
        self._pause_reading()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- the serving task

    async def _serve(self) -> None:
        try:
            if await self._serve_all():
                assert self._authenticator is not None, "authentication failures need an authenticator"
                await self._authenticator.wait_failure_delay()
        except CloseConnection as reason:
            level = logging.WARNING if isinstance(reason, AuthenticationFailed) else logging.INFO
            log.log(level, "closing %s: %s", self.peer, reason)
            if reason.response is not None:
                self._writer.add(self._core.answer(reason.response))
            self._writer.send()
        except asyncio.CancelledError:
            pass
        except Exception:
            log.exception("bug while serving %s", self.peer)
        finally:
            self._open_api_key = -1
            self.close()
            self._server.remove_connection(self)
            self._pipeline.abandon()

    async def _serve_all(self) -> bool:
        """Process requests until the end; return whether to delay the close because the peer sent invalid data."""
        try:
            if self._listener.tls:
                await self._begin_tls()
            while True:
                try:
                    await self._answer_all()
                    if self._transport is None or self._draining:
                        return False
                    await self._wait_for_bytes()
                    continue
                except ResponseOverride as raised:
                    interference = raised
                await self._apply_override(interference)
                del interference
        except DecodeError as error:
            log.warning("closing %s: %s", self.peer, error)
            return self._authenticator is not None and self._authenticator.delays_failure(error)

    async def _apply_override(self, interference: ResponseOverride) -> None:
        interfered = self._core.open
        await interference.apply(self)
        if self._core.open is interfered:
            self._pipeline.abandon()  # neither this request nor those behind it are answered

    async def _begin_tls(self) -> None:
        """Perform the TLS handshake. Raises AuthenticationFailed."""
        transport, protection = self._transport, self._protection
        assert protection is not None, "a listener with TLS has a TLS context"
        if transport is None:
            return
        transport.resume_reading()  # `start_tls` pauses; uvloop, which reads until then, only with this call
        early = self._core.give_back()
        secured, self.peer = await protection.begin_tls(self._server.loop, transport, self, self.peer, early)
        if self._transport is not None:
            self._transport = secured
            self._writer.use(secured)

    @property
    def idle_since_s(self) -> float:
        """Return the time of the last use. Bytes before a login do not count; otherwise slow senders could stay
        forever.
        """
        return self.last_active_s if self._admitted else self.opened_s

    # --- called by the SASL gate of a listener

    def on_login_required(self, frame_bytes_max: int) -> None:
        """Start or repeat authentication."""
        self._core.restrict(frame_bytes_max)

    def expect_tokens(self) -> None:
        """Treat frames as bare SASL tokens, as after SaslHandshake v0."""
        self._core.expect_tokens()

    def on_logged_in(self, principal: str, *, by_token: bool) -> None:
        """Record the principal of a successful login."""
        self.peer = dataclasses.replace(self.peer, principal=principal, by_token=by_token)
        self._admitted = True
        self._core.release(self._server.frame_bytes_max)

    # --- requests and answers

    def _on_client_software(self, software_name: str, software_version: str) -> VersionsByKey:
        """Record the client's software name; return the versions that are accepted from it."""
        self.peer = dataclasses.replace(self.peer, software_name=software_name, software_version=software_version)
        self._writer.sends_alone = software_name == NODE_SOFTWARE
        return self._server.dispatcher.audiences.accepted_for(software_name)

    async def _answer_all(self) -> None:
        """Process every whole request that has arrived, with all its waits."""
        while True:
            try:
                while self._pipeline:
                    self._answer(await self._pipeline.finish_first(self._writer.send))
                    self._start_next_produces()
            finally:
                self._writer.send()
            if self._mute_ms:
                await self._wait_while_muted()
            if self._writer.is_paused and self._transport is not None:
                self._writable = self._server.loop.create_future()
                await self._writable
                self._writable = None
            if not self._answer_at_once():
                return

    def _process_or_wake(self, arrived: asyncio.Future[None], process: Callable[[], bool]) -> None:
        """Do what is possible while the task waits for `arrived`; wake the task for the rest.

        `process` returns whether there is anything to wait for besides more bytes. The code runs as the connection's
        task: `asyncio.timeout` asks for the current task, and a context variable that is set before a wait is read
        after it.
        """
        if self.held_bytes:
            arrived.set_result(None)  # the task decides whether to read on
            return
        loop, task = self._server.loop, self._task
        assert task is not None
        try:
            asyncio._enter_task(loop, task)
        except RuntimeError:  # a closed TLS transport delivers its buffered data in the closing task
            arrived.set_result(None)
            return
        try:
            more = self._context.run(process)
        except (Exception, asyncio.CancelledError) as error:
            if not arrived.done():
                arrived.set_exception(error)  # the task handles all exceptions
        else:
            if more and not arrived.done():
                self._resume_when_done(arrived)
        finally:
            del arrived  # it may hold an exception, which refers to this frame and to a request of megabytes
            asyncio._leave_task(loop, task)

    def _resume_when_done(self, arrived: asyncio.Future[None]) -> None:
        """Let the future of the first request continue it, if that suffices; otherwise the task continues it."""
        waits_for = None if self._mute_ms or self._writer.is_paused else self._pipeline.awaited
        if waits_for is None:
            arrived.set_result(None)
        else:
            waits_for.add_done_callback(self._on_awaited_done)

    def _on_awaited_done(self, waited_for: asyncio.Future[Any]) -> None:
        """Continue the first request, unless the task has taken it over."""
        arrived = self._arrived
        if arrived is not None and not arrived.done() and self._pipeline.awaited is waited_for:
            self._pipeline.wake_first()
            self._process_or_wake(arrived, self._answer_pipelined)

    def _answer_pipelined(self) -> bool:
        """Answer the pipelined requests up to one that waits, then the following; return whether only the task can
        continue.
        """
        work = self._pipeline
        try:
            while work:
                if not work.step_first():
                    return True
                self._answer(work.pop(0))
                self._start_next_produces()
        finally:
            if self._writer.size_bytes:
                self._writer.send()
        if self._draining or self._read_paused or self._mute_ms or self._writer.is_paused:
            return True
        return self._core.buffered > 0 and self._answer_at_once()

    def _answer_at_once(self) -> bool:
        """Process whole requests up to one that waits; return whether there is anything to wait for besides bytes."""
        core, writer, dispatcher = self._core, self._writer, self._server.dispatcher
        throttling = dispatcher.throttling
        try:
            while not self._draining and (request := core.next_request()) is not None:
                if self._transport is None and request.api.key != PRODUCE_KEY:
                    return False
                self._open_api_key = request.api.key
                if self.held_bytes:
                    self._server.request_memory.on_request_started(self)
                gate = self._authenticator
                if gate is not None and (throttling is None or not throttling.active or not gate.is_authenticated):
                    response = start_eagerly(gate.answer(request, self.peer), self._start_next_produces)
                elif throttling is None or not throttling.active:
                    response = start_eagerly(dispatcher.answer(request, self.peer), self._start_next_produces)
                else:
                    response = start_eagerly(self._throttle(throttling, request))
                if type(response) is EagerCoroutine:
                    self._pipeline.append(response)
                    self._start_next_produces()
                    return True
                self._answer(response)
                if writer.size_bytes > BATCHED_RESPONSE_BYTES_MAX:
                    writer.send()
                if self._mute_ms or self._writer.is_paused:
                    return True
            return False
        finally:
            if writer.size_bytes:
                writer.send_with_others()

    def _start_next_as_task(self) -> None:
        loop, task = self._server.loop, self._task
        assert task is not None
        asyncio._enter_task(loop, task)
        try:
            self._context.run(self._start_next_produces)
        finally:
            asyncio._leave_task(loop, task)

    def _start_next_produces(self) -> None:
        """Start the next Produces, as long as all before them only wait for replicas."""
        if self._open_api_key != PRODUCE_KEY or not self._core.buffered:
            return
        work, server = self._pipeline, self._server
        throttling = server.dispatcher.throttling
        if throttling is not None and throttling.active:
            return
        while self._core.buffered and work.accepts_next and not self._draining and not self._writer.is_paused:
            try:
                request = self._core.next_produce()
                if request is None:
                    return
                if self.held_bytes:
                    server.request_memory.on_request_started(self)
                answerer = self._authenticator or server.dispatcher
                work.append(start_eagerly(answerer.answer(request, self.peer), self._start_next_produces))
            except (Exception, asyncio.CancelledError) as error:
                work.append(error)

    async def _throttle(self, throttling: Throttling, request: DecodedRequest) -> Any:
        answerer = self._authenticator or self._server.dispatcher
        response, self._mute_ms = await throttling.answer(request, answerer.answer(request, self.peer), self.peer.user)
        return response

    def _answer(self, response: Any) -> None:
        """Close the open request, and queue its response for the next write."""
        self._open_api_key = PRODUCE_KEY if self._pipeline else -1
        self._writer.add(self._core.answer(response))
        if self.held_bytes:
            self._server.request_memory.account(self, self._core.held_bytes)

    async def _wait_while_muted(self) -> None:
        """Wait for the client's throttle time, or until the connection is lost (KIP-219)."""
        wait_ms, self._mute_ms = self._mute_ms, 0
        if self._transport is None:
            return
        self._muted = muted = self._server.loop.create_future()
        alarm = self._server.loop.call_later(wait_ms / 1000, self._unmute)
        try:
            await muted
        finally:
            alarm.cancel()
            self._muted = None

    def _unmute(self) -> None:
        if self._muted is not None and not self._muted.done():
            self._muted.set_result(None)

    async def _wait_for_bytes(self) -> None:
        if self.held_bytes and not self._server.request_memory.may_read(self):
            self._pause_reading()
        else:
            self.resume_reading()
        self._arrived = self._server.loop.create_future()
        try:
            await self._arrived
        except asyncio.CancelledError as error:
            if not self._pipeline.cancel_first(error):
                raise
        finally:
            self._arrived = None
