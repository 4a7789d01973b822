"""Bounds the bytes of responses that a node holds for slow peers (queued.max.response.bytes).

Bytes of responses that the socket has not accepted count, on connections that hold more than 64 KiB. A Fetch gets half
of the remaining bytes, but always the first batch. At the bound, requests with long responses wait; heartbeats, commits
and produces do not. Fetches of followers wait only at twice the bound: slow consumers do not delay replication, and a
client that poses as a follower is bounded, too.

A peer that reads no byte is disconnected, with a warning in the log: after `connections.max.idle.ms`, or after
`STALL_S` if other requests wait for memory.
Source: Kafka mutes a channel until its response is sent, and has no bound over all channels.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.broker.quotas.request_memory import FREE_BYTES

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer
    from anabranch.broker.config.broker_settings import BrokerSettings

log: Final = logging.getLogger(__name__)

STALL_S: Final = 10.0
"""The time after which a peer that reads nothing is disconnected while requests wait for memory."""
CHECK_S: Final = 1.0
FOLLOWER_BOUNDS: Final = 2
"""The multiple of the bound at which Fetches of followers wait."""
UNBOUNDED_BYTES: Final = 1 << 62
LONG_RESPONSES: Final = frozenset({1, 3, 9, 15, 16, 29, 32, 35, 45, 46, 61, 65, 66, 69, 75, 77, 78, 89, 90, 2531})
"""The API keys with long responses: Fetch, Metadata, OffsetFetch, and those that describe or list."""


class ResponseHolder(Protocol):
    """The part of a connection that `ResponseMemory` uses."""

    held_response_bytes: int

    @property
    def peer(self) -> Peer:
        """The client."""

    @property
    def unsent_bytes(self) -> int:
        """The bytes that the peer has not read yet."""

    def abort(self) -> None:
        """Close at once."""


class _Progress:
    """The time when a peer last read bytes, and the unsent bytes after it."""

    __slots__ = ("since_s", "unsent_bytes")

    def __init__(self, now_s: float, unsent_bytes: int) -> None:
        self.since_s = now_s
        self.unsent_bytes = unsent_bytes


class ResponseMemory:
    """The memory of one node's responses. `bytes_max` of 0 or less: no bound."""

    def __init__(self, bytes_max: int, max_idle_s: float) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._max_idle_s = max_idle_s
        self._holders: dict[ResponseHolder, _Progress] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._waiting_followers: list[asyncio.Future[None]] = []
        self._check: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, settings: BrokerSettings) -> ResponseMemory:
        """Create the response memory from a node's settings."""
        return cls(settings.queued_max_response_bytes, settings.connections_max_idle_ms / 1000)

    @property
    def full(self) -> bool:
        """Whether requests with long responses must wait, except a follower's."""
        return 0 < self.bytes_max <= self.held_bytes

    @property
    def full_for_followers(self) -> bool:
        """Whether Fetches of followers must wait."""
        return 0 < self.bytes_max * FOLLOWER_BOUNDS <= self.held_bytes

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting) + len(self._waiting_followers)

    @property
    def share_bytes(self) -> int:
        """The most bytes of the next response."""
        if self.bytes_max <= 0:
            return UNBOUNDED_BYTES
        return max((self.bytes_max - self.held_bytes) // 2, FREE_BYTES)

    def hold(self, connection: ResponseHolder, size_bytes: int) -> None:
        """Set the bytes of responses that a connection holds."""
        if size_bytes <= FREE_BYTES:
            size_bytes = 0
        before, connection.held_response_bytes = connection.held_response_bytes, size_bytes
        self.held_bytes += size_bytes - before
        if not size_bytes:
            self._holders.pop(connection, None)
        elif connection not in self._holders:
            loop = asyncio.get_running_loop()
            self._holders[connection] = _Progress(loop.time(), connection.unsent_bytes)
            if self._check is None:
                self._check = loop.call_later(CHECK_S, self._close_stalled)
        if size_bytes < before:
            if self._waiting_followers and not self.full_for_followers:
                _wake(self._waiting_followers)
            if self._waiting and not self.full:
                _wake(self._waiting)

    async def wait_for_room(self, *, follower: bool) -> None:
        """Wait until memory is below the bound. Waiting requests resume in order."""
        waiting = self._waiting_followers if follower else self._waiting
        while self.full_for_followers if follower else self.full:
            waiter = asyncio.get_running_loop().create_future()
            waiting.append(waiter)
            try:
                await waiter
            finally:
                if waiter in waiting:
                    waiting.remove(waiter)

    def close(self) -> None:
        """Stop the check for stalled peers."""
        if self._check is not None:
            self._check.cancel()
            self._check = None

    def _close_stalled(self) -> None:
        loop = asyncio.get_running_loop()
        now_s, self._check = loop.time(), None
        limit_s = min(STALL_S, self._max_idle_s) if self.waiting else self._max_idle_s
        for connection, progress in list(self._holders.items()):
            unsent_bytes = connection.unsent_bytes
            if unsent_bytes != progress.unsent_bytes:
                progress.since_s, progress.unsent_bytes = now_s, unsent_bytes
            elif now_s - progress.since_s >= limit_s:
                log.warning(
                    "closing %s: it has read nothing for %d s, with %d bytes of responses unread; %d bytes are "
                    "held for all connections (queued.max.response.bytes=%d), %d requests wait",
                    connection.peer,
                    now_s - progress.since_s,
                    unsent_bytes,
                    self.held_bytes,
                    self.bytes_max,
                    self.waiting,
                )
                connection.abort()
        if self._holders and self._check is None:
            self._check = loop.call_later(CHECK_S, self._close_stalled)


def _wake(waiting: list[asyncio.Future[None]]) -> None:
    woken = list(waiting)
    waiting.clear()
    for waiter in woken:
        if not waiter.done():
            waiter.set_result(None)
