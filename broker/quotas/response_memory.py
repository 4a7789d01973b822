"""Bounds the bytes of responses that a node holds for peers that do not read them.

Counted is what a connection has made and its socket has not taken, on connections that hold more than 64 KiB. A Fetch
gets half of what is left of `queued.max.response.bytes`, but always the first batch. At the bound, requests with long
responses wait. Heartbeats, commits and produces are not delayed. Fetches of followers wait only at twice the bound, so
that replication does not wait for consumers that do not read, and a client that pretends to be a follower is bounded,
too.

A peer that takes no byte is disconnected, with a log line: after `connections.max.idle.ms`, or after `STALL_S` if
other requests wait for the memory.
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
"""How long a peer may take no byte while other requests wait for memory."""
CHECK_S: Final = 1.0
FOLLOWER_BOUNDS: Final = 2
"""At how many times the bound Fetches of followers wait."""
UNBOUNDED_BYTES: Final = 1 << 62
LONG_RESPONSES: Final = frozenset({1, 3, 9, 15, 16, 29, 32, 35, 45, 46, 61, 65, 66, 69, 75, 77, 78, 89, 90, 2531})
"""The keys of the APIs that read: Fetch, Metadata, OffsetFetch, and those that describe or list."""


class ResponseHolder(Protocol):
    """A connection, as far as the memory of its responses is concerned."""

    held_response_bytes: int
    """The bytes that are counted for it."""

    @property
    def peer(self) -> Peer:
        """The client."""

    @property
    def unsent_bytes(self) -> int:
        """The bytes that the peer has yet to read."""

    def abort(self) -> None:
        """Close at once."""


class _Progress:
    """When a peer last took bytes, and how many were left then."""

    __slots__ = ("since_s", "unsent_bytes")

    def __init__(self, now_s: float, unsent_bytes: int) -> None:
        self.since_s = now_s
        self.unsent_bytes = unsent_bytes


class ResponseMemory:
    """The responses of one node. A bound of 0 or less means no bound."""

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
        """The bound that the settings of a node ask for."""
        return cls(settings.queued_max_response_bytes, settings.connections_max_idle_ms / 1000)

    @property
    def full(self) -> bool:
        """Whether requests with long responses have to wait, unless they are a follower's."""
        return 0 < self.bytes_max <= self.held_bytes

    @property
    def full_for_followers(self) -> bool:
        """Whether Fetches of followers have to wait."""
        return 0 < self.bytes_max * FOLLOWER_BOUNDS <= self.held_bytes

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting) + len(self._waiting_followers)

    @property
    def share_bytes(self) -> int:
        """How many bytes the next response may have."""
        if self.bytes_max <= 0:
            return UNBOUNDED_BYTES
        return max((self.bytes_max - self.held_bytes) // 2, FREE_BYTES)

    def hold(self, connection: ResponseHolder, size_bytes: int) -> None:
        """Note how many bytes a connection holds now."""
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
        """Wait until the bound is not reached. Requests that wait are resumed in their order."""
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
        """Stop: disconnect nobody any more."""
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
                    "closing %s: it has read nothing for %d s and leaves %d bytes of responses unread; %d bytes are "
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
