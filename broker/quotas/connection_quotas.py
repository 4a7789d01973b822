"""Limits the rate of new connections, per broker, per listener and per client address (KIP-612).

Over the broker's or the listener's limit (`max.connection.creation.rate`), a new connection and all later ones of its
listener wait in order, then are served. The broker's limit does not count for the listener between brokers, if there
are others: clients that connect too often must not cut off other brokers. Over the limit of its address
(`connection_creation_rate`), a connection is not served: it is held until the rate is down to the limit, and closed, so
that an immediate reconnect gains nothing. It then counts for no limit. No wait is longer than a window. Without limits
nothing is measured.

`ConnectionQuotas` is pure; `AdmissionQueue` orders the waiting connections. Source: kafka.network.ConnectionQuotas.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.broker.config.listeners import canonical
from anabranch.broker.quotas.client_quotas import DEFAULT, IDLE_MS, RATES_MAX, Rate

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer

UNLIMITED: Final = 2**31 - 1
"""Kafka's default of both limits."""


class AcceptedConnection(Protocol):
    """The part of a new connection that `AdmissionQueue` uses."""

    @property
    def peer(self) -> Peer:
        """The client."""

    @property
    def listener_name(self) -> str:
        """The listener that accepted it."""

    def serve(self) -> None:
        """Begin to serve its requests."""

    def close(self) -> None:
        """Close it."""


class ConnectionQuotas:
    """The limits of new connections, and their measured rates."""

    def __init__(self, *, window_ms: int, samples: int, per_second: float = UNLIMITED, exempt: str = "") -> None:
        """`per_second` is the limit of all listeners but `exempt`; it can be assigned later."""
        self.per_second = per_second
        self.listener_limits: Mapping[str, float] = {}
        """The limits of single listeners, by name."""
        self._exempt = exempt
        self._window_ms = window_ms
        self._samples = samples
        self._broker = Rate(window_ms, samples)
        self._listeners: dict[str, Rate] = {}
        self._limits: dict[str, float] = {}
        self._rates: dict[str, Rate] = {}

    @property
    def active(self) -> bool:
        """Whether any limit is set."""
        return bool(self._limits or self.listener_limits) or self.per_second < UNLIMITED

    def set_address_limits(self, limits: Mapping[str, float]) -> None:
        """Replace all limits of addresses; DEFAULT's applies to addresses without their own."""
        self._limits = {ip if ip == DEFAULT else canonical(ip): limit for ip, limit in limits.items()}
        self._rates = {ip: rate for ip, rate in self._rates.items() if self._limit_of(ip) < UNLIMITED}

    def wait_ms(self, now_ms: int, listener: str = "") -> int:
        """Count a new connection. Return the ms that it and all later ones of its listener must wait for service."""
        wait_ms = 0
        for rate, limit in self._rates_of(listener):
            rate.record(1, now_ms)
            wait_ms = max(wait_ms, rate.wait_ms(limit, now_ms))
        return min(wait_ms, self._window_ms)

    def _rates_of(self, listener: str) -> Iterator[tuple[Rate, float]]:
        """Yield the rates for which a connection to a listener counts, with their limits."""
        if self.per_second < UNLIMITED and not (listener and listener == self._exempt):
            yield self._broker, self.per_second
        own = self.listener_limits.get(listener, UNLIMITED)
        if own < UNLIMITED:
            yield self._listeners.setdefault(listener, Rate(self._window_ms, self._samples)), own

    def hold_ms(self, address: str, now_ms: int, listener: str = "") -> int:
        """Apply the address's limit: return 0 to serve the connection, else the ms to hold it before closing it."""
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
            for counted, _ in self._rates_of(listener):
                counted.record(-1, now_ms)
        return hold_ms

    def _limit_of(self, ip: str) -> float:
        limit = self._limits.get(ip)
        return self._limits.get(DEFAULT, UNLIMITED) if limit is None else limit

    def _make_room(self, now_ms: int) -> None:
        if len(self._rates) >= RATES_MAX:
            self._rates = {ip: rate for ip, rate in self._rates.items() if now_ms - rate.idle_since_ms() < IDLE_MS}


class AdmissionQueue:
    """Admits the new connections of one listener in their order of arrival."""

    def __init__(self, quotas: ConnectionQuotas, *, is_open: bool = True) -> None:
        """Unless `is_open`, connections wait for `open`."""
        self._quotas = quotas
        self._is_open = is_open
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[AcceptedConnection] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, connection: AcceptedConnection) -> None:
        """Enqueue a connection, to serve or close it after its wait."""
        self._waiting.append(connection)
        self._accept_waiting()

    def open(self) -> None:
        """Admit waiting and future connections."""
        self._is_open = True
        self._accept_waiting()

    def close(self) -> None:
        """Discard the queue, and stop its timer."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _accept_waiting(self) -> None:
        while self._is_open and self._waiting and self._timer is None:
            wait_ms = self._quotas.wait_ms(self._now_ms(), self._waiting[0].listener_name)
            if wait_ms:
                self._timer = self._loop.call_later(wait_ms / 1000, self._on_timer)
            else:
                self._serve(self._waiting.popleft())

    def _on_timer(self) -> None:
        self._timer = None
        self._serve(self._waiting.popleft())
        self._accept_waiting()

    def _serve(self, connection: AcceptedConnection) -> None:
        hold_ms = self._quotas.hold_ms(connection.peer.host, self._now_ms(), connection.listener_name)
        if hold_ms:
            self._loop.call_later(hold_ms / 1000, connection.close)
        else:
            connection.serve()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
