"""Bounds the bytes of queued requests, and pauses reading from connections at the bound (queued.max.request.bytes).

A request's received bytes count until its response, on connections that hold more than 64 KiB. Smaller requests, such
as heartbeats, fetches and small batches, are never paused. At the bound the other connections stop reading, as Kafka
mutes their channels. Two rules prevent a deadlock:

- If incomplete requests hold all the memory, no request can complete. So one connection at a time reads exclusively:
  the one with the fewest missing bytes. Its exclusive read ends with the response, or when processing takes longer than
  `EXCLUSIVE_READ_S`, because its request may wait for one of another connection.
- A peer that sends too slowly during its exclusive read is disconnected, with a warning in the log.

So the node holds at most the bound and one request, plus one per `EXCLUSIVE_READ_S` while requests wait for each other.
Source: Kafka's `SimpleMemoryPool` and `Selector.muteAll`, which have neither exclusive reads nor time limits.
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
"""The least rate of a peer during its exclusive read, beyond `EXCLUSIVE_READ_S`."""


class MemoryHolder(Protocol):
    """The part of a connection that `RequestMemory` uses."""

    held_bytes: int

    @property
    def peer(self) -> Peer:
        """The client."""

    @property
    def missing_bytes(self) -> int:
        """The missing bytes of a partly received request; 0 without one."""

    def resume_reading(self) -> None:
        """Resume reading."""

    def close(self) -> None:
        """Close it."""


class RequestMemory:
    """The memory of one node's requests. `bytes_max` of 0 or less: no bound."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._waiting: dict[MemoryHolder, None] = {}
        self._reader: MemoryHolder | None = None
        self._reader_has_all = False
        self._timer = Timer(self._on_exclusive_read_expired)

    def account(self, connection: MemoryHolder, size_bytes: int) -> None:
        """Set the bytes that a connection holds."""
        if size_bytes <= FREE_BYTES:
            size_bytes = 0
        before, connection.held_bytes = connection.held_bytes, size_bytes
        self.held_bytes += size_bytes - before
        if size_bytes < before:
            if connection is self._reader:
                self._end_exclusive_read()
            self._resume_waiting()

    def on_request_started(self, connection: MemoryHolder) -> None:
        """Note that a connection's request is complete, and its processing begins."""
        if connection is self._reader:
            self._reader_has_all = True

    def may_read(self, connection: MemoryHolder) -> bool:
        """Whether an idle connection may read; if not, `resume_reading` is called later."""
        if not self.full or not connection.held_bytes or connection is self._reader:
            return True
        if self._reader is None:
            self._grant_exclusive_read(connection)
            return True
        self._waiting[connection] = None
        return False

    def forget(self, connection: MemoryHolder) -> None:
        """Remove a closed connection."""
        self._waiting.pop(connection, None)
        self.account(connection, 0)

    @property
    def full(self) -> bool:
        """Whether the bound is reached: only small requests and the exclusive read continue."""
        return 0 < self.bytes_max <= self.held_bytes

    def _resume_waiting(self) -> None:
        """Resume waiting connections: in order while memory is free, else one exclusively."""
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
                "closing %s: %d bytes of its request are overdue, and other requests wait for memory: %d bytes of "
                "requests are held (queued.max.request.bytes=%d)",
                reader.peer,
                reader.missing_bytes,
                self.held_bytes,
                self.bytes_max,
            )
            reader.close()
        self._resume_waiting()
