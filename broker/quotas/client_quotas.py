"""Client quotas: limits, measured rates and throttle times (KIP-13, KIP-124).

A limit is set for a user, a client id, both, or their defaults. The most specific one applies (`levels`). A user's
limit applies to the common rate of all its clients, a client id's to each client id. Rates are measured over sliding
windows (`quota.window.num` of `quota.window.size.seconds`), so short bursts are not throttled. The throttle time is the
time without use after which the rate equals the limit.

Pure: times are arguments. Sources: `ClientQuotaManager`, `SampledStat`, `Rate` and `QuotaUtils` of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final

from anabranch.protocol.values import slotted

DEFAULT: Final = "<default>"
"""The name of the default entity, whose limit applies to entities without their own."""
ANONYMOUS: Final = "ANONYMOUS"
"""The user of an unauthenticated connection, such as each one on a PLAINTEXT listener."""

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"

IDLE_MS: Final = 60 * 60 * 1000
"""The idle time after which a rate may be removed."""
RATES_MAX: Final = 1000
"""The number of rates at which idle ones are removed."""
WAIT_MS_MAX: Final = 2**31 - 1
"""The longest throttle time that a response can carry."""
BURST_MAX: Final = 2**63 - 1
"""The burst of an infinite limit."""

Entity = tuple[str | None, str | None]
"""User and client id; None: not part of the entity."""


def levels(user: str, client_id: str) -> Iterator[tuple[Entity, Entity]]:
    """The entities whose limit may apply, most specific first, each with the entity whose rate it limits."""
    yield (user, client_id), (user, client_id)
    yield (user, DEFAULT), (user, client_id)
    yield (user, None), (user, None)
    yield (DEFAULT, client_id), (user, client_id)
    yield (DEFAULT, DEFAULT), (user, client_id)
    yield (DEFAULT, None), (user, None)
    yield (None, client_id), (None, client_id)
    yield (None, DEFAULT), (None, client_id)


@slotted
class Rate:
    """A rate per second over the last `samples` windows."""

    window_ms: int
    samples: int
    _windows: list[list[float]] = field(default_factory=list)
    """Start, last use, and sum of each window; the newest is last."""

    def record(self, amount: float, now_ms: int) -> None:
        """Add an amount to the current window."""
        if not self._windows or now_ms - self._windows[-1][0] >= self.window_ms:
            self._windows.append([now_ms, now_ms, 0.0])
            del self._windows[: -self.samples - 1]
        newest = self._windows[-1]
        newest[1] = now_ms
        newest[2] += amount

    def per_second(self, now_ms: int) -> float:
        """The current rate."""
        span_ms = self.span_ms(now_ms)
        return sum(window[2] for window in self._windows) * 1000 / span_ms

    def span_ms(self, now_ms: int) -> int:
        """Remove expired windows, and return the time span of the rate: at least all windows but the current one."""
        expired = now_ms - self.samples * self.window_ms
        self._windows = [window for window in self._windows if window[1] > expired]
        elapsed_ms = now_ms - int(self._windows[0][0]) if self._windows else 0
        missing = self.samples - 1 - elapsed_ms // self.window_ms
        return max(elapsed_ms + max(missing, 0) * self.window_ms, 1)

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """The time without use after which the rate is down to a limit, at most `WAIT_MS_MAX`."""
        excess = self.per_second(now_ms) - limit
        return min(round(excess / max(limit, 1e-3) * self.span_ms(now_ms)), WAIT_MS_MAX) if excess > 0 else 0

    def idle_since_ms(self) -> int:
        """The time of the last use."""
        return int(self._windows[-1][1]) if self._windows else 0


class ClientQuotas:
    """The client quotas of the cluster, and the rates of one broker's clients."""

    def __init__(self, *, window_ms: int, samples: int) -> None:
        self._window_ms = window_ms
        self._samples = samples
        self._limits: dict[Entity, dict[str, float]] = {}
        self._rates: dict[tuple[str, Entity], Rate] = {}
        self.limited: frozenset[str] = frozenset()
        """The names of the limits that any entity has; others are not measured."""

    def set_limits(self, entity: Entity, limits: Mapping[str, float]) -> None:
        """Replace the limits of an entity."""
        self.replace_limits({**self._limits, entity: limits})

    def replace_limits(self, limits: Mapping[Entity, Mapping[str, float]]) -> None:
        """Replace all limits. Rates are kept, unless no entity has a limit of their kind any more."""
        self._limits = {entity: dict(some) for entity, some in limits.items() if some}
        self.limited = frozenset(what for some in self._limits.values() for what in some)
        self._rates = {key: rate for key, rate in self._rates.items() if key[0] in self.limited}

    def limit_of(self, what: str, client_id: str, user: str = ANONYMOUS) -> tuple[float, Entity] | None:
        """The limit that applies to a client, and the entity whose rate it limits; None without a limit."""
        if what in self.limited:
            for entity, shared_by in levels(user, client_id):
                limit = self._limits.get(entity, {}).get(what)
                if limit is not None:
                    return limit, shared_by
        return None

    def burst(self, what: str, client_id: str, user: str = ANONYMOUS) -> int | None:
        """The most that can be used at once so that the rate can return to the limit; None without a limit."""
        found = self.limit_of(what, client_id, user)
        return None if found is None else int(min(found[0] * (self._samples - 1) * self._window_ms / 1000, BURST_MAX))

    def record(
        self,
        what: str,
        client_id: str,
        amount: float,
        now_ms: int,
        *,
        user: str = ANONYMOUS,
        longest_ms: int | None = None,
    ) -> int:
        """Record a use, and return the throttle time in ms, at most `longest_ms`."""
        found = self.limit_of(what, client_id, user)
        if found is None:
            return 0
        limit, shared_by = found
        rate = self._rates.get((what, shared_by))
        if rate is None:
            self._make_room(now_ms)
            rate = self._rates[what, shared_by] = Rate(self._window_ms, self._samples)
        rate.record(amount, now_ms)
        wait_ms = rate.wait_ms(limit, now_ms)
        return wait_ms if longest_ms is None else min(wait_ms, longest_ms)

    def refund(self, what: str, client_id: str, amount: float, now_ms: int, *, user: str = ANONYMOUS) -> None:
        """Undo a recorded use that does not happen."""
        found = self.limit_of(what, client_id, user)
        if found is not None and (rate := self._rates.get((what, found[1]))) is not None:
            rate.record(-amount, now_ms)

    def _make_room(self, now_ms: int) -> None:
        if len(self._rates) >= RATES_MAX:
            self._rates = {key: rate for key, rate in self._rates.items() if now_ms - rate.idle_since_ms() < IDLE_MS}
