"""Backoffs grow, stay below the limit, and differ between clients."""

from __future__ import annotations

import random

from anabranch.clients.backoff import Backoff


def test_no_failure_means_no_backoff() -> None:
    assert Backoff().wait_ms(0, random.Random(1)) == 0


def test_backoff_doubles_up_to_limit() -> None:
    backoff = Backoff(initial_ms=20, limit_ms=1000, jitter=0)
    assert [backoff.wait_ms(n, random.Random(1)) for n in (1, 2, 3, 7, 1000)] == [20, 40, 80, 1000, 1000]


def test_jitter_stays_within_bounds() -> None:
    rng = random.Random(1)
    waits = [Backoff(initial_ms=100, jitter=0.2).wait_ms(1, rng) for _ in range(500)]
    assert 80 <= min(waits) < 90
    assert 110 < max(waits) <= 120
