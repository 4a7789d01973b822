"""Bounds the bytes of requests that a node holds, and decides which connections may read on when there are too many.

Counted is what has arrived of a request until it is answered, on connections that hold more than 64 KiB; smaller
requests always come through, so heartbeats, fetches and small batches do not notice what follows. At
`queued.max.request.bytes` the others stop reading, as Kafka mutes their channels. Two things must not happen then:

- That no request can be finished, because unfinished ones hold all the memory. So one connection at a time has the
  turn and reads on regardless: the one of which least is missing. Its turn ends when its request is answered, or is
  processed for longer than `TURN_S` (it may wait for the request of another).
- That a peer that has the turn sends a byte now and then. A connection that does not finish in time is closed, with a
  log line.

So no more is held than the bound and one request, plus one every `TURN_S` of those that wait for each other.
Source: Kafka's `SimpleMemoryPool` and `Selector.muteAll`, which know neither turns nor time limits.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.clients.timer import Timer

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer

log: Final = logging.getLogger(__name__)

FREE_BYTES: Final = 65_536
EXCLUSIVE_READ_S: Final = 10.0
EXCLUSIVE_READ_BYTES_PER_S: Final = 10 << 20
"""How fast a peer that has the turn must send, after `TURN_S`."""


class MemoryHolder(Protocol):
    """A connection, as far as its memory is concerned."""

    held_bytes: int
    """The bytes that are counted for it."""

    @property
    def peer(self) -> Peer:
        """Who is there."""

    @property
    def missing_bytes(self) -> int:
        """How many bytes are missing of the request that is coming in; 0 if none is."""

    def resume_reading(self) -> None:
        """Begin to read again."""

    def close(self) -> None:
        """Close it."""


class RequestMemory:
    """The requests of one node. A bound of 0 or less is none."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._waiting: dict[MemoryHolder, None] = {}
        self._reader: MemoryHolder | None = None
        """The connection that has the turn."""
        self._reader_has_all = False
        self._timer = Timer(self._on_exclusive_read_expired)

    def account(self, connection: MemoryHolder, size_bytes: int) -> None:
        """Note how many bytes a connection holds now."""
        if size_bytes <= FREE_BYTES:
            size_bytes = 0
        before, connection.held_bytes = connection.held_bytes, size_bytes
        self.held_bytes += size_bytes - before
        if size_bytes < before:
            if connection is self._reader:
                self._end_exclusive_read()
            self._let_read()

    def on_request_started(self, connection: MemoryHolder) -> None:
        """Note that a request of a connection is complete and is being processed."""
        if connection is self._reader:
            self._reader_has_all = True

    def may_read(self, connection: MemoryHolder) -> bool:
        """Whether a connection without a request in work may read on; if not, `read_on` is called when it may."""
        if not self.full or not connection.held_bytes or connection is self._reader:
            return True
        if self._reader is None:
            self._grant_exclusive_read(connection)
            return True
        self._waiting[connection] = None
        return False

    def forget(self, connection: MemoryHolder) -> None:
        """A connection has ended."""
        self._waiting.pop(connection, None)
        self.account(connection, 0)

    @property
    def full(self) -> bool:
        """Whether only small requests and the one that has the turn come in."""
        return 0 < self.bytes_max <= self.held_bytes

    def _let_read(self) -> None:
        """Let connections that wait read on: all of them if there is room again, else one."""
        while self._waiting and not self.full:
            self._release(next(iter(self._waiting)))
        if self._waiting and self._reader is None:
            self._grant_exclusive_read(min(self._waiting, key=lambda one: one.missing_bytes))

    def _grant_exclusive_read(self, connection: MemoryHolder) -> None:
        self._reader, self._reader_has_all = connection, False
        now = asyncio.get_running_loop().time()
        self._timer.set_by(now + EXCLUSIVE_READ_S + connection.missing_bytes / EXCLUSIVE_READ_BYTES_PER_S)
        self._release(connection)

    def _release(self, connection: MemoryHolder) -> None:
        if connection in self._waiting:
            del self._waiting[connection]
            connection.resume_reading()

    def _end_exclusive_read(self) -> None:
        self._reader = None
        self._timer.cancel()

    def _on_exclusive_read_expired(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and self.full and not self._reader_has_all:
            log.warning(
                "closing %s: %d bytes of its request did not come in time, and others wait for its memory: %d bytes of "
                "requests are held (queued.max.request.bytes=%d)",
                reader.peer,
                reader.missing_bytes,
                self.held_bytes,
                self.bytes_max,
            )
            reader.close()
        self._let_read()
