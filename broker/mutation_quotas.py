"""How many partitions a client may create and delete per second, through this controller (KIP-599).

A bucket of tokens per limit: it fills at the rate of the limit, holds what a whole history of windows allows, and a
request may empty it below zero. Who comes while it is below zero is refused (strict, in versions whose clients know
that) or made to wait (permissive, in older ones). Sources: `ControllerMutationQuotaManager`, `TokenBucket` of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.broker.quotas import ClientQuotas, Entity

MUTATIONS: Final = "controller_mutation_rate"


class TokenBucket:
    """What may be used now; below zero, what has to be waited off."""

    def __init__(self, burst: float, now_ms: int) -> None:
        self.tokens = burst
        self._filled_ms = now_ms

    def fill(self, per_second: float, burst: float, now_ms: int) -> None:
        """Let time pass."""
        self.tokens = min(burst, self.tokens + per_second * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms

    def wait_ms(self, per_second: float) -> int:
        """How long until nothing is owed."""
        return round(max(-self.tokens, 0) / max(per_second, 1e-3) * 1000)


class MutationQuotas:
    """The buckets of one controller."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas
        self._buckets: dict[Entity, TokenBucket] = {}

    def spend(self, client_id: str, partitions: int, now_ms: int, *, strict: bool) -> tuple[bool, int]:
        """Whether a client may change so many partitions now, and how long it should wait then."""
        found = self._quotas.limit_of(MUTATIONS, client_id)
        if found is None:
            return True, 0
        limit, shared_by = found
        burst = self._quotas.burst(MUTATIONS, client_id) or 0
        bucket = self._buckets.setdefault(shared_by, TokenBucket(burst, now_ms))
        bucket.fill(limit, burst, now_ms)
        if strict and bucket.tokens < 0:
            return False, bucket.wait_ms(limit)
        bucket.tokens -= partitions
        return True, 0 if strict else bucket.wait_ms(limit)
