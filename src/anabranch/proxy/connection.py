"""Moves bytes between a client, a `Conversation` and the upstream, and passes intercepted requests to the dispatcher.

Reading from a client starts when the upstream is connected. Each side is read only as fast as the other side takes
bytes. Frames in memory share a bound with all other connections (`RequestMemory`).

There is no task per request: one task waits for the intercepted request at the front, as long as there is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from anabranch.broker.authorization.peer import UNKNOWN_PEER, Peer
from anabranch.broker.dispatch.request_context import AuthenticationFailed, CloseConnection
from anabranch.broker.network.eager_coroutine import EagerCoroutine, start_eagerly
from anabranch.broker.network.response_override import ResponseOverride
from anabranch.protocol.connection import encode_response
from anabranch.protocol.errors import DecodeError
from anabranch.proxy.connection_side import ConnectionSide
from anabranch.proxy.conversation import Conversation, FrameHandler, Handling, Slot, frame_parts
from anabranch.proxy.opaque_message import OpaqueMessage, read_answer, read_request
from anabranch.proxy.request_header import RequestHeader
from anabranch.proxy.upstream_dispatcher import encode_request

if TYPE_CHECKING:
    from anabranch.broker.dispatch.dispatcher import Dispatcher
    from anabranch.broker.quotas.request_memory import RequestMemory
    from anabranch.protocol.codec import DecodedRequest
    from anabranch.protocol.varint import Buffer

log: Final = logging.getLogger(__name__)

GONE: Final = "the upstream has closed the connection"
BUFFERED_BYTES_MAX: Final = 1 << 20
"""How many bytes may wait behind a blocking request."""
UNANSWERED_MAX: Final = 1000
"""How many requests of one connection may wait for responses."""


class ConnectionOwner(Protocol):
    """The interface of a broker's port for its connections."""

    dispatcher: Dispatcher
    memory: RequestMemory
    protocol: str
    """The protocol of clients: PLAINTEXT or SSL."""
    request_bytes_max: int
    answer_bytes_max: int

    def admit(self, connection: ProxiedConnection) -> bool:
        """Accept a new connection; False refuses it."""

    def remove_connection(self, connection: ProxiedConnection) -> None:
        """Forget a closed connection."""

    async def begin_tls(self, transport: asyncio.Transport, side: ConnectionSide, peer: Peer) -> asyncio.Transport:
        """Start TLS on the client's side, if the port uses it. Raises AuthenticationFailed."""

    async def connect(self, side: ConnectionSide) -> asyncio.Transport:
        """Connect to the upstream. Raises OSError."""

    def handling_of(self, head: RequestHeader, peer: Peer) -> Handling:
        """Decide how a request is handled."""

    def rewrite(self, head: RequestHeader, frame: bytes, local_host: str) -> bytes:
        """A response with the proxy's addresses; `local_host` is the client's local address. Raises DecodeError."""

    def own_answer(self, head: RequestHeader) -> bytes:
        """The proxy's own response to a request."""


class ProxiedConnection(FrameHandler):
    """A client's connection to one broker's port, and its connection to that broker."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._core = Conversation(self, owner.request_bytes_max, owner.answer_bytes_max)
        self.client = ConnectionSide(self, self._core.requests)
        self._upstream = ConnectionSide(self, self._core.answers)
        self.peer = UNKNOWN_PEER
        self._local_host = ""
        self._opening: asyncio.Task[None] | None = None
        self._driver: asyncio.Task[None] | None = None
        self._changed: asyncio.Future[None] | None = None
        self._stay: asyncio.Future[None] | None = None
        self._deaf = False
        self._going = False
        self._open = False
        """Whether the upstream is connected."""
        self._upstream_gone = False
        self._closed = False

    # --- connection events

    def on_connected(self, side: ConnectionSide) -> None:
        """Handle a connected side."""
        if side is self._upstream:
            return
        transport = side.transport
        assert transport is not None
        address, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if address:
            self.peer = Peer(address[0], address[1], listener=self._owner.protocol, protocol=self._owner.protocol)
            self._local_host = local[0]
        side.pause()
        if not self._owner.admit(self):
            side.abort()
            return
        self._opening = asyncio.get_running_loop().create_task(self._find_way())

    async def _find_way(self) -> None:
        """Connect to the upstream, then start reading."""
        try:
            assert self.client.transport is not None
            self.client.take_over(await self._owner.begin_tls(self.client.transport, self.client, self.peer))
            await self._owner.connect(self._upstream)
        except AuthenticationFailed as error:
            log.warning("closing %s: %s", self.peer, error)
            self.client.abort()
        except OSError:
            self.client.abort()  # the listener logs the reason once
        else:
            if self._closed:
                self._upstream.close()
                return
            self._open = True
            self.client.resume_reading()
            self.process()

    def on_lost(self, side: ConnectionSide) -> None:
        """Handle a lost side: close the other one when all bytes have been written."""
        if self._closed:
            return
        if side is self._upstream:
            self._upstream_gone = True
            for slot in self._core.slots:
                if slot.waiter is not None and not slot.waiter.done():
                    slot.waiter.set_exception(CloseConnection(GONE))
            self.process()
            return
        self._closed = True
        for task in (self._opening, self._driver):
            if task is not None:
                task.cancel()
        self._upstream.close()
        self._end_wait()
        for one in (self.client, self._upstream):
            self._owner.memory.forget(one)
        self._owner.remove_connection(self)

    # --- frames

    def process(self) -> None:
        """Process all received bytes as far as possible."""
        if self._closed or self._deaf or self._going or not self._open:
            return
        self._going = True
        try:
            core = self._core
            while (slot := core.next_request()) is not None:
                self._begin(slot)
            while (answer := core.next_answer()) is not None:
                self._deliver(*answer)
        except DecodeError as error:
            log.warning("closing %s: %s", self.peer, error)
            self._deaf = True  # closing the upstream calls this again for the same bytes
            self._flush()
            self.client.close()
            self._upstream.close()
            return
        finally:
            self._going = False
        self._flush()
        if core.slots and core.slots[0].how is Handling.INTERCEPT:
            self._wake_driver()  # the responses before it have passed
        elif self._upstream_gone:
            self.client.close()
        self.apply_backpressure()

    def _flush(self) -> None:
        core = self._core
        if core.to_upstream:
            chunks, core.to_upstream = core.to_upstream, []
            self._upstream.write(chunks)
        if core.to_client:
            chunks, core.to_client = core.to_client, []
            self.client.write(chunks)

    def apply_backpressure(self) -> None:
        """Read from each side only as fast as the other side takes bytes."""
        core = self._core
        held_up = core.blocked and core.requests.held_bytes > BUFFERED_BYTES_MAX
        self._read(self.client, stop=self._upstream.full or held_up or len(core.slots) > UNANSWERED_MAX)
        waits = not core.answers.is_gathering and core.answers.held_bytes > BUFFERED_BYTES_MAX
        self._read(self._upstream, stop=self.client.full or waits)

    def _read(self, side: ConnectionSide, stop: bool) -> None:
        memory, held_bytes = self._owner.memory, side.stream.held_bytes
        if side is self._upstream and self.client.full and self.client.transport is not None:
            held_bytes += self.client.transport.get_write_buffer_size()
        memory.account(side, held_bytes)
        if stop or self._deaf or (side.held_bytes and not memory.may_read(side)):
            side.pause()
        elif self._open:
            side.resume_reading()

    # --- frame handling: see `FrameHandler`

    def handling_of(self, head: RequestHeader) -> Handling:
        """See FrameHandler."""
        return self._owner.handling_of(head, self.peer)

    def rewrite(self, head: RequestHeader, frame: bytes) -> bytes:
        """See FrameHandler."""
        return self._owner.rewrite(head, frame, self._local_host)

    def own_answer(self, head: RequestHeader) -> bytes:
        """See FrameHandler."""
        return self._owner.own_answer(head)

    # --- intercepted requests

    def _begin(self, slot: Slot) -> None:
        slot.request = read_request(slot.head, slot.frame)
        try:
            outcome = start_eagerly(self._owner.dispatcher.answer(slot.request, self.peer))
        except (ResponseOverride, CloseConnection) as error:
            outcome = error
        if type(outcome) is EagerCoroutine:
            slot.coroutine = outcome
        else:
            slot.outcome, slot.done = outcome, True
        if self._driver is None:
            self._driver = asyncio.get_running_loop().create_task(self._run_overrides())
        else:
            self._wake_driver()

    def _wake_driver(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def ask(self, request: DecodedRequest) -> Any:
        """See UpstreamPort: the dispatcher sends a request upstream, or the part that a rule has left."""
        slot = next(
            one
            for one in self._core.slots
            if one.how is Handling.INTERCEPT and not one.sent and one.head.correlation_id == request.correlation_id
        )
        chunks = frame_parts(slot.frame) if request is slot.request else encode_request(request)
        slot.frame = b""
        self._core.send(slot, chunks)
        if not slot.head.answered:
            return None
        if self._upstream.transport is None:
            raise CloseConnection(GONE)
        slot.waiter = asyncio.get_running_loop().create_future()
        self.process()  # a blocked request and those behind it continue here
        frame = await slot.waiter
        try:
            answer = read_answer(request, frame)
        except DecodeError as error:
            raise CloseConnection(f"cannot decode the upstream's response: {error}") from None
        slot.read = answer, frame
        return answer

    def _deliver(self, slot: Slot, frame: bytes) -> None:
        if not slot.waiter.done():
            slot.waiter.set_result(frame)

    async def _run_overrides(self) -> None:
        """Complete intercepted requests, each when it has reached the front."""
        slots = self._core.slots
        try:
            while True:
                while (
                    not slots
                    or slots[0].how is not Handling.INTERCEPT
                    or (slots[0].coroutine is None and not slots[0].done)
                ):
                    self._changed = asyncio.get_running_loop().create_future()
                    await self._changed
                slot = slots[0]
                if slot.coroutine is not None:
                    coroutine, slot.coroutine = slot.coroutine, None
                    try:
                        slot.outcome = await coroutine
                    except (ResponseOverride, CloseConnection) as error:
                        slot.outcome = error
                    slot.done = True
                await self._end(slot)
                self.process()
        except CloseConnection as reason:
            log.info("closing %s: %s", self.peer, reason)
            self.client.close()
        except Exception:
            log.exception("bug while serving %s", self.peer)
            self.client.abort()
        finally:
            for slot in slots:
                if slot.coroutine is not None:
                    await _give_up(slot.coroutine)

    async def _end(self, slot: Slot) -> None:
        """Answer the request at the front with its outcome."""
        outcome = slot.outcome
        if isinstance(outcome, ResponseOverride):
            await outcome.apply(SlotHandle(self, slot))
            if slot in self._core.slots:  # no response, and none to the requests behind it
                await asyncio.get_running_loop().create_future()
            return
        if isinstance(outcome, CloseConnection):
            if outcome.response is not None:
                self._core.close(slot, self.encode_response(slot, outcome.response))
            self._flush()
            raise outcome
        self._core.close(slot, self.encode_response(slot, outcome))

    def encode_response(self, slot: Slot, response: Any) -> list[Buffer]:
        """Encode a response; an unchanged one keeps its received bytes."""
        if response is None:
            return []
        if slot.read is not None and slot.read[0] is response:
            return frame_parts(slot.read[1])
        if isinstance(response, OpaqueMessage):
            return frame_parts(response.frame)
        return encode_response(slot.request, response)

    # --- for response overrides

    def answer(self, slot: Slot) -> None:
        """Mark a slot as answered by what is sent."""
        self._core.close(slot, [])

    def send(self, chunks: Sequence[Buffer]) -> None:
        """Write to the client."""
        self._core.to_client += chunks
        self._flush()

    async def wait(self, wait_ms: int) -> bool:
        """Wait for this time, or until the connection closes; returns whether it is still open."""
        loop = asyncio.get_running_loop()
        self._stay = loop.create_future()
        alarm = loop.call_later(wait_ms / 1000, self._end_wait)
        try:
            await self._stay
        finally:
            alarm.cancel()
            self._stay = None
        return self.client.transport is not None

    def stop_reading(self) -> None:
        """Stop reading."""
        self._deaf = True
        self.apply_backpressure()

    def _end_wait(self) -> None:
        if self._stay is not None and not self._stay.done():
            self._stay.set_result(None)

    async def stop(self) -> None:
        """Close the connection now."""
        self.client.abort()
        self._upstream.abort()
        tasks = [one for one in (self._opening, self._driver) if one is not None]
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SlotHandle:
    """The handle of a connection for the override of one response: see `ConnectionHandle`."""

    def __init__(self, connection: ProxiedConnection, slot: Slot) -> None:
        self._connection = connection
        self._slot = slot
        self.send = connection.send
        self.wait = connection.wait
        self.stop_reading = connection.stop_reading
        self.close = connection.client.close
        self.abort = connection.client.abort

    def encode_response(self, response: Any) -> list[Buffer]:
        """See ConnectionHandle."""
        chunks = self._connection.encode_response(self._slot, response)
        self._connection.answer(self._slot)
        return chunks


async def _give_up(coroutine: EagerCoroutine) -> None:
    """Cancel work whose result nobody needs."""
    coroutine.cancel(asyncio.CancelledError())
    with contextlib.suppress(asyncio.CancelledError, ResponseOverride, CloseConnection):
        await coroutine
