"""One accepted socket: reads the bytes of its requests, and closes it when it has to end.

The `RequestProcessor` processes the requests. A request that needs no wait is answered in the callback that received
its bytes. A request that waits continues in the callback of its future (`eager_coroutine`). One long-lived task per
connection does the rest (`serving_task`): it waits for quotas and for the peer, and yields to the event loop. No task
is created per request.

Back-pressure works in both directions. Reading pauses while too many bytes wait to be processed, on this connection or
on all (`request_memory`). The next request waits while earlier responses pile up in the socket.

A DecodeError closes the connection with one log line; it does not affect other connections.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from anabranch.broker.authorization.peer import Peer
from anabranch.broker.dispatch.request_context import AuthenticationFailed, CloseConnection
from anabranch.broker.network.request_processor import NO_REQUEST, RequestProcessor, RequestProcessorOwner
from anabranch.broker.network.response_override import ResponseOverride
from anabranch.broker.network.response_writer import ResponseWriter, ResponseWriterOwner
from anabranch.broker.network.serving_task import ServingTask
from anabranch.broker.quotas.request_memory import FREE_BYTES
from anabranch.protocol.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.broker.authentication.listener_security import ListenerSecurity
    from anabranch.broker.config.listeners import Listener
    from anabranch.protocol.varint import Buffer

log: Final = logging.getLogger(__name__)


class ConnectionOwner(RequestProcessorOwner, ResponseWriterOwner, Protocol):
    """The part of the server that a connection uses."""

    loop: asyncio.AbstractEventLoop
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
        self._transport: asyncio.Transport | None = None
        self._serving = ServingTask()
        self._writable: asyncio.Future[None] | None = None
        self._muted: asyncio.Future[None] | None = None
        self._writer = ResponseWriter(self, server)
        self._requests = RequestProcessor(self, server, self._writer, protection if listener.sasl else None)
        self._core = self._requests.core
        self._read_paused = False
        self.last_active_s = 0.0
        self.opened_s = 0.0
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
            self._requests.peer = Peer(address[0], address[1], listener=listener.name, protocol=listener.protocol)
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
        core, requests, server = self._core, self._requests, self._server
        held_bytes = core.buffer_updated(nbytes) + core.unanswered_bytes
        server.received_bytes += nbytes
        if held_bytes > FREE_BYTES or self.held_bytes:
            server.request_memory.account(self, held_bytes)
        self.last_active_s = server.loop.time()
        wakeup = self._serving.wakeup
        if wakeup is not None and not wakeup.done() and not requests.pipeline:
            self._process(requests.answer_received)
            return
        if requests.pipeline and asyncio.current_task(server.loop) is None:
            self._serving.run(requests.start_next_produces)
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
        may have repeated them elsewhere, and a commit processed after its successor would undo it. So is a Produce with
        other acks, and a commit that has not been appended yet (`refuse_if_lost`).
        """
        self._transport = None
        self._requests.lose()
        self._writer.drop()
        task = self._serving.task
        if task is None:
            self._server.remove_connection(self)
        elif self._requests.open_api_key in self._server.dispatcher.long_polls:
            task.cancel()
        self._serving.wake()
        self.resume_writing()
        self._unmute()

    # --- called by the server

    def serve(self) -> None:
        """Begin to process requests, including those that already wait in the buffer."""
        if self._transport is not None and not self._transport.is_closing():
            self._serving.start(self._server.loop, self._serve())

    @property
    def peer(self) -> Peer:
        """The client."""
        return self._requests.peer

    @property
    def listener_name(self) -> str:
        """The name of the listener that accepted it."""
        return self._listener.name

    @property
    def busy(self) -> bool:
        """Whether a request is being processed."""
        return self._requests.open_api_key != NO_REQUEST

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
        self._requests.is_draining = True
        self._unmute()
        if not self.busy:
            self.close()
        return self._serving.task

    async def stop(self) -> None:
        """Close the connection at once, and wait for the serving task."""
        if self._transport is not None:
            self._transport.abort()
        task = self._serving.task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # --- called by a response override: see `ConnectionHandle`

    def encode_response(self, response: Any) -> list[Buffer]:
        """Encode the response to the open request, and close the request."""
        return self._requests.encode_response(response)

    def send(self, chunks: list[Buffer]) -> None:
        """Write bytes to the peer."""
        self._writer.add(chunks)
        self._writer.send()

    async def wait(self, wait_ms: int) -> bool:
        """Wait for this time or until the connection is to end; return whether to continue."""
        self._requests.mute_ms = wait_ms
        await self._wait_while_muted()
        return self._transport is not None and not self._requests.is_draining

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
                authenticator = self._requests.authenticator
                assert authenticator is not None, "authentication failures need an authenticator"
                await authenticator.wait_failure_delay()
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
            self._requests.open_api_key = NO_REQUEST
            self.close()
            self._server.remove_connection(self)
            self._requests.pipeline.abandon()

    async def _serve_all(self) -> bool:
        """Process requests until the end; return whether to delay the close because the peer sent invalid data."""
        try:
            if self._listener.tls:
                await self._begin_tls()
            while True:
                try:
                    await self._answer_all()
                    if self._transport is None or self._requests.is_draining:
                        return False
                    await self._wait_for_bytes()
                    continue
                except ResponseOverride as raised:
                    interference = raised
                await self._apply_override(interference)
                del interference
        except DecodeError as error:
            log.warning("closing %s: %s", self.peer, error)
            authenticator = self._requests.authenticator
            return authenticator is not None and authenticator.delays_failure(error)

    async def _apply_override(self, interference: ResponseOverride) -> None:
        interfered = self._core.open
        await interference.apply(self)
        if self._core.open is interfered:
            self._requests.pipeline.abandon()  # neither this request nor those behind it are answered

    async def _begin_tls(self) -> None:
        """Perform the TLS handshake. Raises AuthenticationFailed."""
        transport, protection = self._transport, self._protection
        assert protection is not None, "a listener with TLS has a TLS context"
        if transport is None:
            return
        transport.resume_reading()  # `start_tls` pauses; uvloop, which reads until then, only with this call
        early = self._core.give_back()
        secured, self._requests.peer = await protection.begin_tls(self._server.loop, transport, self, self.peer, early)
        if self._transport is not None:
            self._transport = secured
            self._writer.use(secured)

    @property
    def idle_since_s(self) -> float:
        """Return the time of the last use. Bytes before a login do not count; otherwise slow senders could stay
        forever.
        """
        return self.last_active_s if self._requests.is_admitted else self.opened_s

    # --- requests and answers

    async def _answer_all(self) -> None:
        """Process every whole request that has arrived, with all its waits."""
        requests = self._requests
        while True:
            await requests.finish_pipelined()
            if requests.mute_ms:
                await self._wait_while_muted()
            if self._writer.is_paused and self._transport is not None:
                self._writable = self._server.loop.create_future()
                await self._writable
                self._writable = None
            if not requests.answer_received():
                return
            if not requests.pipeline:
                await asyncio.sleep(0)  # more requests than one step processes

    def _process(self, process: Callable[[], bool]) -> None:
        """Do what is possible while the task waits for bytes; wake the task for the rest.

        `process` returns whether there is anything to wait for besides more bytes.
        """
        if self.held_bytes:
            self._serving.wake()  # the task decides whether to read on
        elif self._serving.process(process):
            self._resume_when_done()

    def _resume_when_done(self) -> None:
        """Let the future of the first request continue it, if that suffices; otherwise the task continues it."""
        requests = self._requests
        waits_for = None if requests.mute_ms or self._writer.is_paused else requests.pipeline.awaited
        if waits_for is None:
            self._serving.wake()
        else:
            waits_for.add_done_callback(self._on_awaited_done)

    def _on_awaited_done(self, waited_for: asyncio.Future[Any]) -> None:
        """Continue the first request, unless the task has taken it over."""
        pipeline = self._requests.pipeline
        if self._serving.is_waiting and pipeline.awaited is waited_for:
            pipeline.wake_first()
            self._process(self._answer_pipelined)

    def _answer_pipelined(self) -> bool:
        """Answer the pipelined requests up to one that waits, then the following; return whether only the task can
        continue.
        """
        requests = self._requests
        if not requests.answer_pipelined() or self._read_paused:
            return True
        return self._core.buffered > 0 and requests.answer_received()

    async def _wait_while_muted(self) -> None:
        """Wait for the client's throttle time, or until the connection is lost (KIP-219)."""
        wait_ms, self._requests.mute_ms = self._requests.mute_ms, 0
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
        try:
            await self._serving.wait()
        except asyncio.CancelledError as error:
            if not self._requests.pipeline.cancel_first(error):
                raise
