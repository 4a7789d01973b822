"""Controller mutation quotas: limits of the partitions that a client creates and deletes per second (KIP-599).

Each limit has a token bucket: it fills at the rate of the limit, up to the burst of all windows, and a request may make
it negative. While it is negative, a request is refused (strict: versions with THROTTLING_QUOTA_EXCEEDED) or throttled
(permissive: older versions). Sources: `ControllerMutationQuotaManager`, `TokenBucket` of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.broker.quotas.client_quotas import ANONYMOUS, IDLE_MS, RATES_MAX, WAIT_MS_MAX

if TYPE_CHECKING:
    from anabranch.broker.quotas.client_quotas import ClientQuotas, Entity

MUTATIONS: Final = "controller_mutation_rate"


class TokenBucket:
    """A token bucket that may become negative."""

    def __init__(self, burst: float, now_ms: int) -> None:
        self.tokens = burst
        self.filled_ms = now_ms

    def fill(self, per_second: float, burst: float, now_ms: int) -> None:
        """Add the tokens of the elapsed time, up to `burst` in total."""
        self.tokens = min(burst, self.tokens + per_second * (now_ms - self.filled_ms) / 1000)
        self.filled_ms = now_ms

    def wait_ms(self, per_second: float) -> int:
        """The ms until the bucket is no longer negative, at most `WAIT_MS_MAX`."""
        return min(round(max(-self.tokens, 0) / max(per_second, 1e-3) * 1000), WAIT_MS_MAX)


class MutationQuotas:
    """The token buckets of one controller."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas
        self._buckets: dict[Entity, TokenBucket] = {}

    def spend(
        self, client_id: str, partitions: int, now_ms: int, *, strict: bool, user: str = ANONYMOUS
    ) -> tuple[bool, int]:
        """Charge a client for partitions. Returns whether it may change them now, and its throttle time in ms."""
        found = self._quotas.limit_of(MUTATIONS, client_id, user)
        if found is None:
            return True, 0
        limit, shared_by = found
        burst = self._quotas.burst(MUTATIONS, client_id, user) or 0
        bucket = self._buckets.get(shared_by)
        if bucket is None:
            self._make_room(now_ms)
            bucket = self._buckets[shared_by] = TokenBucket(burst, now_ms)
        bucket.fill(limit, burst, now_ms)
        if strict and bucket.tokens < 0:
            return False, bucket.wait_ms(limit)
        bucket.tokens -= partitions
        return True, 0 if strict else bucket.wait_ms(limit)

    def _make_room(self, now_ms: int) -> None:
        if len(self._buckets) >= RATES_MAX:
            self._buckets = {key: one for key, one in self._buckets.items() if now_ms - one.filled_ms < IDLE_MS}
