"""How many partitions a client may create and delete per second, through this controller (KIP-599).

A bucket of tokens per limit: it fills at the rate of the limit, holds what a whole history of windows allows, and a
request may empty it below zero. A request that comes while it is below zero is refused (strict, in versions whose
clients know that) or has to wait (permissive, in older ones). Sources: `ControllerMutationQuotaManager`, `TokenBucket`
of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.broker.quotas.client_quotas import ANONYMOUS

if TYPE_CHECKING:
    from anabranch.broker.quotas.client_quotas import ClientQuotas, Entity

MUTATIONS: Final = "controller_mutation_rate"


class TokenBucket:
    """The number of tokens that may be used now; below zero, the debt that has to be waited for."""

    def __init__(self, burst: float, now_ms: int) -> None:
        self.tokens = burst
        self._filled_ms = now_ms

    def fill(self, per_second: float, burst: float, now_ms: int) -> None:
        """Add the tokens of the time that has passed, at most `burst` in all."""
        self.tokens = min(burst, self.tokens + per_second * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms

    def wait_ms(self, per_second: float) -> int:
        """How many ms it takes until the bucket is not below zero."""
        return round(max(-self.tokens, 0) / max(per_second, 1e-3) * 1000)


class MutationQuotas:
    """The buckets of one controller."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas
        self._buckets: dict[Entity, TokenBucket] = {}

    def spend(
        self, client_id: str, partitions: int, now_ms: int, *, strict: bool, user: str = ANONYMOUS
    ) -> tuple[bool, int]:
        """Charge a client.

        Returns whether it may change so many partitions now, and how many ms it should wait after.
        """
        found = self._quotas.limit_of(MUTATIONS, client_id, user)
        if found is None:
            return True, 0
        limit, shared_by = found
        burst = self._quotas.burst(MUTATIONS, client_id, user) or 0
        bucket = self._buckets.setdefault(shared_by, TokenBucket(burst, now_ms))
        bucket.fill(limit, burst, now_ms)
        if strict and bucket.tokens < 0:
            return False, bucket.wait_ms(limit)
        bucket.tokens -= partitions
        return True, 0 if strict else bucket.wait_ms(limit)
