"""Limits how many connections an address may have, and how fast new ones are served (KIP-612).

A connection that comes too fast for the broker (`max.connection.creation.rate`) waits, and all that come after it wait
behind it; then it is served like any other. A connection that is over the limit of its address
(`connection_creation_rate`) is never served: it is held for as long as it takes the rate to come down, and closed, so
that a client which opens a new one at once gains nothing. It counts for neither limit. No wait is longer than a window.
Where no limit is set nothing is measured.

`ConnectionQuotas` is pure; `Entrance` keeps the order of those that wait. Source: kafka.network.ConnectionQuotas.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.broker.config.listeners import canonical
from anabranch.broker.quotas.client_quotas import DEFAULT, IDLE_MS, RATES_MAX, Rate

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer

UNLIMITED: Final = 2**31 - 1
"""Kafka's default of both limits."""


class AcceptedConnection(Protocol):
    """A new connection, as far as its entrance is concerned."""

    peer: Peer

    def serve(self) -> None:
        """Begin to answer its requests."""

    def close(self) -> None:
        """Close it."""


class ConnectionQuotas:
    """The limits, and how fast connections have come."""

    def __init__(self, *, window_ms: int, samples: int, per_second: float = UNLIMITED) -> None:
        """`per_second` is the limit of the whole broker, which may change."""
        self.per_second = per_second
        self._window_ms = window_ms
        self._samples = samples
        self._broker = Rate(window_ms, samples)
        self._limits: dict[str, float] = {}
        self._rates: dict[str, Rate] = {}

    @property
    def active(self) -> bool:
        """Whether there is any limit."""
        return bool(self._limits) or self.per_second < UNLIMITED

    def set_address_limits(self, limits: Mapping[str, float]) -> None:
        """Replace all limits of addresses; that of DEFAULT is for those without one of their own."""
        self._limits = {ip if ip == DEFAULT else canonical(ip): limit for ip, limit in limits.items()}
        self._rates = {ip: rate for ip, rate in self._rates.items() if self._limit_of(ip) < UNLIMITED}

    def wait_ms(self, now_ms: int) -> int:
        """Count a new connection. Returns for how many ms it, and all behind it, have to wait before it is served."""
        if self.per_second >= UNLIMITED:
            return 0
        self._broker.record(1, now_ms)
        return min(self._broker.wait_ms(self.per_second, now_ms), self._window_ms)

    def hold_ms(self, address: str, now_ms: int) -> int:
        """What to do with a connection that has waited: 0 to serve it, else the ms to hold it before it is closed."""
        if not self._limits:
            return 0
        ip = canonical(address)
        limit = self._limit_of(ip)
        if limit >= UNLIMITED:
            return 0
        rate = self._rates.get(ip)
        if rate is None:
            self._make_room(now_ms)
            rate = self._rates[ip] = Rate(self._window_ms, self._samples)
        rate.record(1, now_ms)
        hold_ms = min(rate.wait_ms(limit, now_ms), self._window_ms)
        if hold_ms:
            rate.record(-1, now_ms)
            if self.per_second < UNLIMITED:
                self._broker.record(-1, now_ms)
        return hold_ms

    def _limit_of(self, ip: str) -> float:
        limit = self._limits.get(ip)
        return self._limits.get(DEFAULT, UNLIMITED) if limit is None else limit

    def _make_room(self, now_ms: int) -> None:
        if len(self._rates) >= RATES_MAX:
            self._rates = {ip: rate for ip, rate in self._rates.items() if now_ms - rate.idle_since_ms() < IDLE_MS}


class AdmissionQueue:
    """Lets new connections in, one after the other, in the order in which they came."""

    def __init__(self, quotas: ConnectionQuotas, *, is_open: bool = True) -> None:
        """Unless it is open, connections wait for `open`."""
        self._quotas = quotas
        self._is_open = is_open
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[AcceptedConnection] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, connection: AcceptedConnection) -> None:
        """Serve a connection when its time has come, or close it."""
        self._waiting.append(connection)
        self._look()

    def open(self) -> None:
        """Let in who has come and who comes."""
        self._is_open = True
        self._look()

    def close(self) -> None:
        """Let in no more connections."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        while self._is_open and self._waiting and self._timer is None:
            wait_ms = self._quotas.wait_ms(self._now_ms())
            if wait_ms:
                self._timer = self._loop.call_later(wait_ms / 1000, self._waited)
            else:
                self._let_in(self._waiting.popleft())

    def _waited(self) -> None:
        self._timer = None
        self._let_in(self._waiting.popleft())
        self._look()

    def _let_in(self, connection: AcceptedConnection) -> None:
        hold_ms = self._quotas.hold_ms(connection.peer.host, self._now_ms())
        if hold_ms:
            self._loop.call_later(hold_ms / 1000, connection.close)
        else:
            connection.serve()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
