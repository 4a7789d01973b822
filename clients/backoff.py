"""Exponential backoff with jitter, from the number of failures so far (KIP-580)."""

from __future__ import annotations

import random

from anabranch.protocol.values import value


@value
class Backoff:
    """Grows from `initial_ms` by `factor` up to `limit_ms`; each wait varies by up to `jitter` either way."""

    initial_ms: float = 20.0
    limit_ms: float = 1000.0
    factor: float = 2.0
    jitter: float = 0.2

    def wait_ms(self, failures: int, rng: random.Random) -> float:
        """Return the wait after this number of consecutive failures; 0 after none."""
        if failures <= 0:
            return 0.0
        # The exponent is bounded so that a peer that is down for days does not overflow a float.
        grown = min(self.limit_ms, self.initial_ms * self.factor ** min(failures - 1, 64))
        return grown * (1 + self.jitter * (2 * rng.random() - 1))
